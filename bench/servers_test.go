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
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/bench/result"
	"github.com/fencepost/fencepost/internal/test/servers"
)

var into = result.DirFlag()

// inMemory is a file system in memory on Linux.
const inMemory = "/dev/shm"

// TestServers compares appends with plain requests on real servers. They share this machine's
// processors with the client, and keep their data in memory where that is possible: a disk
// varies by more than the difference. A server that is not installed is installed first, which
// takes minutes. If one is not available, the test is skipped and its page stays as it is.
//
// An append is also compared with the least that any correct writer does: see numbered. A
// plain PUT does less, so it is no bound that a writer could reach.
//
// Times depend on what else the machine does. So the processor time that the client and the
// server need is compared too. Without latency and on the same machine nothing else limits
// the throughput.
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
	r.Text += " The least that a correct writer does is a PUT that copies the record after a header of 128 bytes, creates the next key only if it is absent, and sends a CRC-32C. It acknowledges in order. All that is compared is sent by one client, 16 at a time, and each side writes one log for all rounds; a server cannot tell the two apart (`TestArmsAreEqual`). Times depend on what else the machine does; processor time does so less, and without latency nothing else limits the throughput."
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
		{"64 KiB", 64 << 10, 200, 160, 0.97},
		{"4 MiB", 4 << 20, 16, 48, 0.95},
	} {
		b, err := e.beside(t.Context(), c.size, c.n, 16, c.rounds)
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf(" on %s %s: %s appends, 16 in flight", kind.Name, kind.Version, c.name)
		r.add(Row{Name: "throughput to the least that a correct writer does" + name, Value: b.writer.Median, Goal: c.goal, More: true, Ratio: true, Note: b.writer.Note})
		if own, least := b.appends.client+b.appends.servers, b.least.client+b.least.servers; own > 0 {
			r.add(Row{Name: "the same by processor time of client and server" + name, Value: least.Seconds() / own.Seconds(), More: true, Ratio: true})
		}
		r.add(Row{Name: "throughput to plain PUTs" + name, Value: b.plain.Median, More: true, Ratio: true, Note: b.plain.Note})
		t.Logf("%s: %+v", name, b)
	}
}

// comparison is what beside measures: the throughput of appends relative to that of plain requests,
// and of numbered; and the processor time that appends took in all rounds, and numbered.
type comparison struct {
	plain, writer  result.Spread
	appends, least cost
}

// cost is the processor time of this process and of its children, the servers; 0 if the system does
// not tell it in nanoseconds.
type cost struct{ client, servers time.Duration }

// beside compares n appends with n plain requests, and with n of numbered. The time ends when all
// are acknowledged. One writer makes all rounds, because opening one takes longer than a round; so
// does one log of numbered, because it makes a difference to some servers how many objects a
// folder has.
func (e *endpoint) beside(ctx context.Context, size, n, depth, rounds int) (c comparison, err error) {
	w, err := e.open(ctx, pipeline(depth, size))
	if err != nil {
		return c, err
	}
	least := &numbered{endpoint: e, prefix: "log-" + uuid.NewString()}
	arms := []func(n int) error{
		func(n int) error { return errors.Join(appendSome(ctx, w, size, n), w.Flush(ctx)) },
		func(n int) error { return e.putAll(ctx, size, n, depth) },
		func(n int) error { return least.write(ctx, size, n, depth) },
	}
	var timed []result.Arm
	costs := make([]cost, len(arms))
	for i, arm := range arms {
		if err := arm(warm * depth); err != nil {
			return c, err
		}
		timed = append(timed, func() (time.Duration, error) {
			before, start := processors(), time.Now()
			err := arm(n)
			took := time.Since(start)
			after := processors()
			costs[i].client += after.client - before.client
			costs[i].servers += after.servers - before.servers
			return took, err
		})
	}
	times, err := result.Times(rounds, timed...)
	if err := errors.Join(err, w.Close(ctx)); err != nil {
		return c, err
	}
	c.plain, c.writer = result.Speed(times[0], times[1]), result.Speed(times[0], times[2])
	c.appends, c.least = costs[0], costs[2]
	return c, nil
}

// processors is what was used so far.
func processors() (sum cost) {
	used := func(pid string) (sum time.Duration) {
		threads, _ := filepath.Glob("/proc/" + pid + "/task/*/schedstat")
		for _, file := range threads {
			stat, _ := os.ReadFile(file) // a thread may have ended
			if fields := strings.Fields(string(stat)); len(fields) > 0 {
				ns, _ := strconv.ParseInt(fields[0], 10, 64)
				sum += time.Duration(ns)
			}
		}
		return sum
	}
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, list := range lists {
		children, _ := os.ReadFile(list)
		for _, pid := range strings.Fields(string(children)) {
			sum.servers += used(pid)
		}
	}
	sum.client = used("self")
	return sum
}

// numbered is a log of which nothing is known but what any writer must do that loses and doubles
// nothing:
//   - The record is copied, since its caller may change it afterwards, after a header of 128
//     bytes.
//   - The key is the next number of a log, and the object is created only if it is absent.
//   - A CRC-32C of the header and the record goes with the request. It is computed once.
//   - An append is acknowledged after all before it. At most 4 × depth wait for that.
type numbered struct {
	*endpoint
	prefix string
	next   int
}

// write makes n requests. The names are as long and as deep as those of a log of ours.
func (e *numbered) write(ctx context.Context, size, n, depth int) error {
	bodies := payloads(size)
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
		e.next++
		key := fmt.Sprintf("%s/data/%020d/%020d", e.prefix, 1, e.next)
		buf := <-free
		buf = append(append(buf[:0], make([]byte, 128)...), bodies[i%len(bodies)]...)
		done := make(chan struct{})
		acks <- done
		g.Go(func() error {
			defer func() { close(done); free <- buf }()
			sum := base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.Checksum(buf, table)))
			_, err := e.client.PutObject(ctx, &s3.PutObjectInput{
				Bucket: &e.bucket, Key: &key, Body: bytes.NewReader(buf),
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
