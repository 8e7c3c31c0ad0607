package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/internal/test/s3stub"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/probe"
	"github.com/fencepost/fencepost/store/s3store"
	"github.com/fencepost/fencepost/writer"
)

const bucket = "bucket"

// delays is the latency of an endpoint. It can change while the endpoint runs, so that
// both arms of a comparison get the same sequence from its beginning.
type delays struct {
	now atomic.Pointer[s3stub.Latency]
}

// set changes the latency. nil: none.
func (d *delays) set(l s3stub.Latency) { d.now.Store(&l) }

func (d *delays) latency(op s3stub.Op, size int) time.Duration {
	if l := d.now.Load(); l != nil && *l != nil {
		return (*l)(op, size)
	}
	return 0
}

// endpoint is an S3 endpoint in this process, or a real server, with one client.
type endpoint struct {
	*s3stub.Server // nil for a real server
	delays         *delays
	client         *s3.Client
	bucket         string
	st             store.Store
}

// newEndpoint starts an endpoint without latency, with warm connections.
func newEndpoint(ctx context.Context) (*endpoint, error) {
	d := &delays{}
	srv := s3stub.Start(&s3stub.Options{Latency: d.latency, RandomETags: true, Record: true})
	e, err := newClient(s3.Options{
		BaseEndpoint: aws.String(srv.URL()), HTTPClient: srv.HTTPClient(),
		Credentials: credentials.NewStaticCredentialsProvider("AK", "SK", ""),
	}, bucket)
	if err == nil {
		e.Server, e.delays = srv, d
		d.set(s3stub.Fixed(5 * time.Millisecond)) // slow enough that 64 requests open 64 connections
		err = e.putAll(ctx, 7, 128, 64)
	}
	if err != nil {
		srv.Close()
		return nil, err
	}
	d.set(nil)
	return e, nil
}

// newClient makes a client with the SDK's defaults. So a plain PutObject has a checksum
// too.
func newClient(o s3.Options, bucket string) (*endpoint, error) {
	o.Region, o.UsePathStyle, o.RetryMaxAttempts = "us-east-1", true, 1
	o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenSupported // the default of config.LoadDefaultConfig
	client := s3.New(o)
	st, err := s3store.New(client, bucket, nil)
	return &endpoint{client: client, bucket: bucket, st: st}, err
}

// with runs f on a new endpoint.
func with(ctx context.Context, f func(*endpoint) error) error {
	e, err := newEndpoint(ctx)
	if err != nil {
		return err
	}
	defer e.Close()
	return f(e)
}

// quickly creates a log with a short probe, because the probe is not measured.
var quickly = &manifest.InitOptions{Probe: &probe.Options{Clients: 2, Rounds: 1, Keys: 1, Refusals: 2, UploadSize: 1}}

// folder returns a store for a new log.
func (e *endpoint) folder() store.Store {
	st, err := store.Sub(e.st, "log-"+uuid.NewString())
	if err != nil {
		panic(err) // the name is valid
	}
	return st
}

// open opens a writer on a new log and waits until its first manifest is written.
// Otherwise that write would run during the first appends and use latencies of the
// sequence.
func (e *endpoint) open(ctx context.Context, opts writer.Options) (*writer.Writer, error) {
	opts.Init, opts.Checkpoint = quickly, -1
	st := e.folder()
	w, err := writer.Open(ctx, st, fence.NewToken(1), &opts)
	if err != nil {
		return nil, err
	}
	for {
		log := state.With(st, w.Format(), nil)
		m, err := log.Newest(ctx)
		if err != nil {
			return nil, err
		}
		if m.Version > 0 {
			time.Sleep(20 * time.Millisecond) // the writer's last listing ends
			if e.Server != nil {
				e.Reset()
			}
			return w, nil
		}
		time.Sleep(time.Millisecond)
	}
}

// put makes the plain request to which an append is compared.
func (e *endpoint) put(ctx context.Context, key string, body []byte) error {
	_, err := e.client.PutObject(ctx, &s3.PutObjectInput{Bucket: &e.bucket, Key: &key, Body: bytes.NewReader(body)})
	return err
}

// putAll makes n plain requests of size bytes, depth of them at a time.
func (e *endpoint) putAll(ctx context.Context, size, n, depth int) error {
	bodies, prefix := payloads(size), uuid.NewString()
	return atOnce(ctx, depth, n, func(ctx context.Context, i int) error {
		return e.put(ctx, fmt.Sprintf("%s/%d", prefix, i), bodies[i%len(bodies)])
	})
}

// atOnce calls f for the numbers below n, depth calls at a time.
func atOnce(ctx context.Context, depth, n int, f func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(depth)
	for i := range n {
		g.Go(func() error { return f(ctx, i) })
	}
	return g.Wait()
}

// copyAll is putAll with copied bodies, in buffers that are reused.
func (e *endpoint) copyAll(ctx context.Context, size, n, depth int) error {
	g, ctx := errgroup.WithContext(ctx)
	prefix, bodies := uuid.NewString(), payloads(size)
	free := make(chan []byte, depth)
	for range depth {
		free <- nil
	}
	for i := range n {
		body := <-free
		body = append(body[:0], bodies[i%len(bodies)]...)
		g.Go(func() error {
			defer func() { free <- body }()
			return e.put(ctx, fmt.Sprintf("%s/%d", prefix, i), body)
		})
	}
	return g.Wait()
}

// appendAll makes n appends of a record of size bytes each and closes the writer.
func appendAll(ctx context.Context, w *writer.Writer, size, n int) error {
	if err := appendSome(ctx, w, size, n); err != nil {
		return err
	}
	return w.Close(ctx)
}

// appendSome makes n appends of a record of size bytes each.
func appendSome(ctx context.Context, w *writer.Writer, size, n int) error {
	bodies := payloads(size)
	for i := range n {
		at := i % len(bodies)
		if _, err := w.AppendAsync(ctx, bodies[at:at+1]); err != nil {
			return err
		}
	}
	return nil
}

// pipeline returns options with which every append of size bytes is an object of its own.
func pipeline(depth, size int) writer.Options {
	return writer.Options{Init: quickly, Checkpoint: -1, Concurrency: depth, Window: 4 * depth, BatchBytes: int64(min(size+8, 32<<20)), NoCompress: true, MaxBytes: 1 << 30, Hedge: -1}
}

// payloads returns bodies to use in turn. They do not fit into the processor's caches,
// because a program too writes data that it has just made, and once.
var payloads = memo(func(size int) [][]byte {
	all := make([][]byte, max(1, min(64<<20/size, 1024)))
	whole := payload(size * len(all))
	for i := range all {
		all[i] = whole[i*size : (i+1)*size : (i+1)*size]
	}
	return all
})

// memo keeps the last result of f, so that it is not made while time is measured.
func memo(f func(int) [][]byte) func(int) [][]byte {
	var mu sync.Mutex
	var size int
	var last [][]byte
	return func(n int) [][]byte {
		mu.Lock()
		defer mu.Unlock()
		if n != size {
			size, last = n, f(n)
		}
		return last
	}
}

func payload(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b)
	return b
}
