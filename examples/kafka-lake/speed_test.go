//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/fencepost/fencepost/delta"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store/dirstore"
	"github.com/fencepost/fencepost/writer"
)

// The arms of a measure of speed are processes of this test binary. Each takes a line from its
// standard input, does its work once, and answers with a line of JSON: took.
var (
	speedRole  = flag.String("speed", "", "be this process of the measure of speed, and run no test: broker, parquet, writer or kafka")
	speedAt    = flag.String("speed-brokers", "", "with -speed kafka: the broker")
	speedDir   = flag.String("speed-dir", "", "with -speed: a folder for files")
	speedRows  = flag.Int("speed-rows", 400_000, "with -speed: how many messages")
	speedFiles = flag.Int("speed-files", 4, "with -speed: how many files they become")
)

// took is what an arm has measured. Kept counts the bytes of its files.
type took struct {
	Seconds   float64 `json:"seconds"`
	Processor float64 `json:"processor"`
	Bytes     int64   `json:"bytes"`
	Kept      int64   `json:"kept"`
	Files     int     `json:"files"`
}

func TestMain(m *testing.M) {
	flag.Parse()
	if *speedRole == "" {
		os.Exit(m.Run())
	}
	if err := speed(context.Background(), *speedRole, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "speed:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// speed is a process of the measure, until its input ends.
func speed(ctx context.Context, role string, in io.Reader, out io.Writer) error {
	if role == "broker" {
		brokers, stop, err := speedBroker(ctx)
		if err != nil {
			return err
		}
		defer stop()
		fmt.Fprintln(out, brokers)
		_, err = io.Copy(io.Discard, in)
		return err
	}
	arm := map[string]func(context.Context, string, []row) (took, error){"parquet": speedParquet, "writer": speedWriter, "kafka": speedKafka}[role]
	if arm == nil {
		return fmt.Errorf("there is no role %q", role)
	}
	runtime.GOMAXPROCS(1)
	var rows []row
	var size int64
	if role != "kafka" { // which has no rows in memory
		rows = make([]row, 0, *speedRows)
	}
	for i := range *speedRows {
		m := speedMessage(i)
		size += int64(len(m.Key) + len(m.Value))
		if role != "kafka" {
			r := rowOf(m)
			r.Offset = int64(i)
			rows = append(rows, r)
		}
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		t, err := speedOnce(ctx, arm, rows)
		if err != nil {
			return err
		}
		t.Bytes = size
		if err := json.NewEncoder(out).Encode(t); err != nil {
			return err
		}
	}
	return nil
}

// speedOnce lets an arm work in a new folder.
func speedOnce(ctx context.Context, arm func(context.Context, string, []row) (took, error), rows []row) (t took, err error) {
	dir, err := os.MkdirTemp(*speedDir, "arm-")
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	runtime.GC()
	if t, err = arm(ctx, dir, rows); err != nil {
		return t, err
	}
	return t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".parquet" {
			return err
		}
		info, err := d.Info()
		if err == nil {
			t.Files++
			t.Kept += info.Size()
		}
		return err
	})
}

// stopwatch returns a function that tells what has passed.
func stopwatch() func() took {
	now := func() (time.Time, float64) {
		var u syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		return time.Now(), float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
	}
	begun, cpu := now()
	return func() took {
		end, spent := now()
		return took{Seconds: end.Sub(begun).Seconds(), Processor: spent - cpu}
	}
}

// speedMessage is a message with a key, 100 bytes of JSON, and a time.
func speedMessage(i int) *kgo.Record {
	m := message(i)
	m.Timestamp = time.UnixMilli(1_700_000_000_000 + int64(i)/100).UTC()
	return m
}

// speedBroker is a Kafka with the messages in one partition.
func speedBroker(ctx context.Context) (string, func(), error) {
	brokers, stop, err := embedded()
	if err != nil {
		return "", nil, err
	}
	err = createTopic(ctx, brokers, topic, 1)
	var client *kgo.Client
	if err == nil {
		client, err = kgo.NewClient(kgo.SeedBrokers(split(brokers)...), kgo.DefaultProduceTopic(topic))
	}
	if err != nil {
		stop()
		return "", nil, err
	}
	defer client.Close()
	var failed kgo.FirstErrPromise
	for i := range *speedRows {
		client.Produce(ctx, speedMessage(i), failed.Promise())
	}
	if err := failed.Err(); err != nil {
		stop()
		return "", nil, err
	}
	return brokers, stop, nil
}

// inFile is how many messages are in each file.
func inFile() int { return *speedRows / *speedFiles }

// speedParquet writes rows to files by the Parquet library alone.
func speedParquet(_ context.Context, dir string, rows []row) (took, error) {
	lap := stopwatch()
	for i := range *speedFiles {
		err := func() error {
			f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%d.parquet", i)))
			if err != nil {
				return err
			}
			defer func() { _ = f.Close() }()
			w := parquet.NewGenericWriter[row](f, parquet.MaxRowsPerRowGroup(1<<20), parquet.Compression(&parquet.Zstd)) // as delta.Writer
			for some := rows[i*inFile() : (i+1)*inFile()]; len(some) > 0; some = some[min(batch, len(some)):] {
				if _, err := w.Write(some[:min(batch, len(some))]); err != nil {
					return err
				}
			}
			return errors.Join(w.Close(), f.Sync())
		}()
		if err != nil {
			return took{}, err
		}
	}
	return lap(), nil
}

// speedLog opens a new log in a folder.
func speedLog(ctx context.Context, dir string) (*writer.Writer, error) {
	st, err := dirstore.Open(dir, nil)
	if err != nil {
		return nil, err
	}
	return writer.Open(ctx, st, fence.NewToken(1), &writer.Options{Init: &manifest.InitOptions{Probe: quickProbe}})
}

// speedWriter writes rows by a delta.Writer, which commits each file.
func speedWriter(ctx context.Context, dir string, rows []row) (t took, err error) {
	w, err := speedLog(ctx, dir)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, w.Close(ctx)) }()
	lap := stopwatch()
	d, err := delta.NewWriter(ctx, w, &delta.WriterOptions[row]{})
	if err != nil {
		return t, err
	}
	for len(rows) > 0 {
		n := min(batch, len(rows), inFile()-int(d.Pending()))
		if err := d.Write(ctx, rows[:n]); err != nil {
			return t, err
		}
		if rows = rows[n:]; int(d.Pending()) == inFile() {
			if err := d.Commit(ctx); err != nil {
				return t, err
			}
		}
	}
	return lap(), nil
}

// speedKafka copies all messages, as a worker does.
func speedKafka(ctx context.Context, dir string, _ []row) (t took, err error) {
	w, err := speedLog(ctx, dir)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, w.Close(ctx)) }()
	ctx, done := context.WithCancel(ctx)
	defer done()
	l := &lake{brokers: split(*speedAt), topic: topic, rows: uint64(inFile()), flush: time.Minute}
	var lap func() took
	l.committed = func(at cursor, _ uint64) {
		if at.Offset == int64(*speedRows) {
			t = lap()
			done()
		}
	}
	lap = stopwatch()
	if err := l.copyPartition(ctx, w, 0); !errors.Is(err, context.Canceled) {
		return t, err
	}
	return t, nil
}

// TestSpeed: each arm of the measure writes the same files.
func TestSpeed(t *testing.T) {
	args := func(role string, more ...string) []string {
		return append([]string{"-speed", role, "-speed-rows", "6000", "-speed-files", "2", "-speed-dir", t.TempDir()}, more...)
	}
	broker := exec.Command(os.Args[0], args("broker")...)
	in, err := broker.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := broker.StdoutPipe()
	if err == nil {
		err = broker.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close(); _ = broker.Wait() }()
	at, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{"parquet", "writer", "kafka"} {
		var errs bytes.Buffer
		arm := exec.Command(os.Args[0], args(role, "-speed-brokers", strings.TrimSpace(at))...)
		arm.Stdin, arm.Stderr = strings.NewReader("\n\n"), &errs
		out, err := arm.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", role, err, &errs)
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		for _, line := range lines {
			var got took
			if err := json.Unmarshal([]byte(line), &got); err != nil || got.Files != 2 || got.Bytes < 6000*80 || got.Kept == 0 || got.Seconds <= 0 {
				t.Errorf("%s answers %s: %v", role, line, err)
			}
		}
		if len(lines) != 2 {
			t.Errorf("%s answers %d times", role, len(lines))
		}
	}
}
