package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/bench/result"
	"github.com/fencepost/fencepost/integration/servers"
)

var into = result.DirFlag()

// inMemory is a file system in memory on Linux.
const inMemory = "/dev/shm"

// TestServers compares appends with plain requests on real servers. They share this machine's
// processors with the client, and keep their data in memory where that is possible: a disk
// varies by more than the difference. A server that is not installed is installed first, which
// takes minutes. If one is not available, the test is skipped and its page stays as it is.
//
// An append is also compared with the least that any correct writer does: see writeAll. A
// plain PUT does less, so it is no bound that a writer could reach.
func TestServers(t *testing.T) {
	if *into == "" {
		t.Skip("this test only measures; it needs -results")
	}
	r := &report{result.New("Appends beside plain PUTs on real servers", "servers"), t.Name()}
	r.Text = "The servers keep their data on this machine's disk."
	if info, err := os.Stat(inMemory); err == nil && info.IsDir() {
		t.Setenv("TMPDIR", inMemory)
		r.Text = "The servers keep their data in memory."
	}
	r.Text += " The least that a correct writer does is a PUT that copies the record after a header of 128 bytes, creates the next key only if it is absent, and sends a CRC-32C. It acknowledges in order."
	for _, kind := range []*servers.Kind{servers.VersityGW, servers.MinIO} {
		t.Run(kind.Name, func(t *testing.T) { r.beside(t, kind) })
	}
	if t.Failed() {
		return
	}
	if err := r.Write(*into); err != nil {
		t.Fatal(err)
	}
}

func (r *report) beside(t *testing.T, kind *servers.Kind) {
	srv := servers.Start(t, kind)
	e, err := newClient(s3.Options{BaseEndpoint: aws.String(srv.Endpoint), Credentials: credentials.NewStaticCredentialsProvider(os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"), "")}, srv.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		size, n int
		rounds  int
		goal    float64
	}{
		{"64 KiB", 64 << 10, 200, 64, 0.97},
		{"4 MiB", 4 << 20, 16, 12, 0.95},
	} {
		plain, writer, err := e.beside(t.Context(), c.size, c.n, 16, c.rounds)
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf(" on %s %s: %s appends, 16 in flight", kind.Name, kind.Version, c.name)
		r.add(Row{Name: "throughput to the least that a correct writer does" + name, Value: writer.Median, Goal: c.goal, More: true, Ratio: true, Note: writer.Note},
			Row{Name: "throughput to plain PUTs" + name, Value: plain.Median, More: true, Ratio: true, Note: plain.Note})
		t.Logf("%s: %+v, %+v", name, writer, plain)
	}
}

// beside returns the throughput of n appends relative to that of n plain requests, and to
// that of writeAll. The time ends when all appends are acknowledged. One writer makes all
// rounds, because opening one takes longer than a round.
func (e *endpoint) beside(ctx context.Context, size, n, depth, rounds int) (plain, writer result.Spread, err error) {
	w, err := e.open(ctx, pipeline(depth, size))
	if err != nil {
		return plain, writer, err
	}
	arms := []func(n int) error{
		func(n int) error { return errors.Join(appendSome(ctx, w, size, n), w.Flush(ctx)) },
		func(n int) error { return e.putAll(ctx, size, n, depth) },
		func(n int) error { return e.writeAll(ctx, size, n, depth) },
	}
	var timed []result.Arm
	for _, arm := range arms {
		if err := arm(warm * depth); err != nil {
			return plain, writer, err
		}
		timed = append(timed, func() (time.Duration, error) {
			start := time.Now()
			err := arm(n)
			return time.Since(start), err
		})
	}
	times, err := result.Times(rounds, timed...)
	if err := errors.Join(err, w.Close(ctx)); err != nil {
		return plain, writer, err
	}
	return result.Speed(times[0], times[1]), result.Speed(times[0], times[2]), nil
}

// writeAll makes n requests that do what any writer must do that loses and doubles nothing:
//   - The record is copied, since its caller may change it afterwards, after a header of 128
//     bytes.
//   - The key is the next number of a log, and the object is created only if it is absent.
//   - A CRC-32C of the header and the record goes with the request. It is computed once.
//   - An append is acknowledged after all before it. At most 4 × depth wait for that.
func (e *endpoint) writeAll(ctx context.Context, size, n, depth int) error {
	prefix, bodies := "log-"+uuid.NewString()+"/log/", payloads(size)
	table := crc32.MakeTable(crc32.Castagnoli)
	acks := make(chan chan struct{}, 4*depth)
	free := make(chan []byte, depth)
	for range depth {
		free <- nil
	}
	acknowledged := make(chan struct{})
	go func() {
		defer close(acknowledged)
		for done := range acks {
			<-done
		}
	}()
	g, ctx := errgroup.WithContext(ctx)
	for i := range n {
		buf := <-free
		buf = append(append(buf[:0], make([]byte, 128)...), bodies[i%len(bodies)]...)
		done := make(chan struct{})
		acks <- done
		g.Go(func() error {
			defer func() { close(done); free <- buf }()
			sum := base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.Checksum(buf, table)))
			_, err := e.client.PutObject(ctx, &s3.PutObjectInput{
				Bucket: &e.bucket, Key: aws.String(fmt.Sprintf("%s%020d", prefix, i)), Body: bytes.NewReader(buf),
				IfNoneMatch: aws.String("*"), ChecksumCRC32C: &sum,
			})
			return err
		})
	}
	err := g.Wait()
	close(acks)
	<-acknowledged
	return err
}
