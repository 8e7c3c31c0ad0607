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
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/fencepost/fencepost/ext/delta"
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
	speedPlain = flag.Bool("speed-plain", false, "with -speed: the messages of the story, whose numbers count up, so that they compress better")
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
	arm := map[string]func(context.Context, string, []kgo.Record) (took, error){"parquet": speedParquet, "writer": speedWriter, "kafka": speedKafka}[role]
	if arm == nil {
		return fmt.Errorf("there is no role %q", role)
	}
	runtime.GOMAXPROCS(1)
	collectRarely()
	var messages []kgo.Record
	var size int64
	if role != "kafka" { // which has no messages in memory
		messages = make([]kgo.Record, 0, *speedRows)
	}
	for i := range *speedRows {
		m := speedMessage(i)
		size += int64(len(m.Key) + len(m.Value))
		if role != "kafka" {
			messages = append(messages, *m)
		}
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		t, err := speedOnce(ctx, arm, messages)
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
func speedOnce(ctx context.Context, arm func(context.Context, string, []kgo.Record) (took, error), messages []kgo.Record) (t took, err error) {
	dir, err := os.MkdirTemp(*speedDir, "arm-")
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	runtime.GC()
	if t, err = arm(ctx, dir, messages); err != nil {
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

// speedMessage is a message with a key, a value of 100 bytes of JSON, and a time. It has its place in
// Kafka: each partition has the messages of one file.
func speedMessage(i int) *kgo.Record {
	m := speedContent(i)
	m.Partition, m.Offset = int32(i/inFile()), int64(i%inFile())
	return m
}

func speedContent(i int) *kgo.Record {
	at := 1_700_000_000_000 + int64(i)/100
	if *speedPlain {
		m := message(i)
		m.Timestamp = time.UnixMilli(at).UTC()
		return m
	}
	x, y := mix(uint64(i)), mix(uint64(i)+1<<40)
	customer, price := y%100_000, 10_000+y>>36%89_900
	return &kgo.Record{
		Key: fmt.Appendf(nil, "customer-%05d", customer),
		Value: fmt.Appendf(nil, `{"order":"%012x","customer":%d,"item":%d,"price":%d.%02d,"in":"EUR","at":%d}`,
			x>>16, 100_000+customer, 10_000+y>>20%10_000, price/100, price%100, at),
		Timestamp: time.UnixMilli(at).UTC(),
	}
}

// mix is splitmix64: a number that looks random. bench/lake/appends.py has the same one.
func mix(n uint64) uint64 {
	n = (n + 1) * 0x9E3779B97F4A7C15
	n = (n ^ n>>30) * 0xBF58476D1CE4E5B9
	n = (n ^ n>>27) * 0x94D049BB133111EB
	return n ^ n>>31
}

// speedBroker is a Kafka with the messages. Each file is to have those of one partition. The producer's
// settings are Kafka's defaults: it does not compress, and a batch has up to 16 KiB.
func speedBroker(ctx context.Context) (string, func(), error) {
	brokers, stop, err := embedded()
	if err != nil {
		return "", nil, err
	}
	err = createTopic(ctx, brokers, topic, *speedFiles)
	var client *kgo.Client
	if err == nil {
		client, err = kgo.NewClient(kgo.SeedBrokers(split(brokers)...), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(16<<10), kgo.ProducerLinger(5*time.Millisecond))
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

// rowsOf appends the rows of messages, as a worker does.
func rowsOf(rows []row, messages []kgo.Record) []row {
	for i := range messages {
		rows = append(rows, rowOf(&messages[i]))
	}
	return rows
}

// speedParquet writes messages to files by the Parquet library alone.
func speedParquet(_ context.Context, dir string, messages []kgo.Record) (took, error) {
	lap := stopwatch()
	rows := make([]row, 0, batch)
	for i := range *speedFiles {
		err := func() error {
			f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%d.parquet", i)))
			if err != nil {
				return err
			}
			defer func() { _ = f.Close() }()
			w := parquet.NewGenericWriter[row](f, parquet.MaxRowsPerRowGroup(1<<20), parquet.Compression(&parquet.Zstd)) // as delta.Writer
			for some := range slices.Chunk(messages[i*inFile():(i+1)*inFile()], batch) {
				rows = rowsOf(rows[:0], some)
				if _, err := w.Write(rows); err != nil {
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

// speedWriter writes messages by a delta.Writer, which commits each file.
func speedWriter(ctx context.Context, dir string, messages []kgo.Record) (t took, err error) {
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
	rows := make([]row, 0, batch)
	for file := range slices.Chunk(messages, inFile()) {
		for some := range slices.Chunk(file, batch) {
			rows = rowsOf(rows[:0], some)
			if err := d.Write(ctx, rows); err != nil {
				return t, err
			}
		}
		if err := d.Commit(ctx); err != nil {
			return t, err
		}
	}
	return lap(), nil
}

// speedKafka copies all partitions, as one worker does that owns them all.
func speedKafka(ctx context.Context, dir string, _ []kgo.Record) (t took, err error) {
	var logs []*writer.Writer
	defer func() {
		for _, w := range logs {
			err = errors.Join(err, w.Close(ctx))
		}
	}()
	for i := range *speedFiles {
		w, err := speedLog(ctx, filepath.Join(dir, fmt.Sprint(i)))
		if err != nil {
			return t, err
		}
		logs = append(logs, w)
	}
	lap := stopwatch()
	faults := make([]error, len(logs))
	var all sync.WaitGroup
	for i, w := range logs {
		all.Go(func() {
			ctx, done := context.WithCancel(ctx)
			defer done()
			l := &lake{brokers: split(*speedAt), topic: topic, rows: uint64(inFile()), flush: time.Minute}
			l.committed = func(cursor, uint64) { done() } // one file is the whole partition
			if err := l.copyPartition(ctx, w, int32(i)); !errors.Is(err, context.Canceled) {
				faults[i] = err
			}
		})
	}
	all.Wait()
	return lap(), errors.Join(faults...)
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
