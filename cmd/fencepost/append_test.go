package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/internal/test/s3stub"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

// awkward are bytes that a careless copy would change.
var awkward = map[string]string{
	"empty":         "",
	"one newline":   "\n",
	"no newline":    "a\nb",
	"lines":         "a\n\nb\r\n\x00\xff\xfe\n \n",
	"a NUL":         "\x00",
	"a longer file": strings.Repeat("0123456789\n", 100_000) + "the end",
}

func TestRoundTrip(t *testing.T) {
	for name, content := range awkward {
		t.Run(name, func(t *testing.T) {
			url, file := newLog(t, memURL(t)), writeFile(t, content)
			must(t, "", "append", url, file)
			if got := must(t, "", "cat", "--format", "raw", url); got != content {
				t.Errorf("%d bytes came back, not the %d that went in", len(got), len(content))
			}
			// The records as frames are an input in turn.
			frames := must(t, "", "cat", "--format", "frames", url)
			again := newLog(t, memURL(t)+"-again")
			must(t, frames, "append", "--format", "frames", again)
			if got := must(t, "", "cat", "--format=frames", again); got != frames {
				t.Errorf("%d bytes of frames came back, not %d", len(got), len(frames))
			}
			if got := must(t, "", "cat", "--format", "raw", again); got != content {
				t.Errorf("%d bytes came back by way of frames, not %d", len(got), len(content))
			}
		})
	}
}

func TestAppendTwiceStoresOnce(t *testing.T) {
	url, content := newLog(t, memURL(t)), "a\nb\nc"
	file := writeFile(t, content)
	must(t, "", "append", "--cursor", url, file)
	r := run(t, "", "append", url, file, "--cursor")
	if r.status != 0 || !strings.Contains(r.err, "nothing to append: all 5 bytes") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
	if got := must(t, "", "cat", "--format", "raw", url); got != content {
		t.Errorf("%q", got)
	}
	// It grows, in the midst of the last line.
	content += "c\nd\n"
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	report := parsed[struct {
		Records, Bytes, End, Position, Epoch int
		Source                               string
	}](t, "append", "--cursor", "--json", url, file)
	if report.Records != 2 || report.Bytes != 4 || report.End != 5 || report.Position != 9 || report.Epoch != 3 || report.Source != file {
		t.Errorf("%+v", report)
	}
	if got := must(t, "", "cat", "--format", "raw", url); got != content {
		t.Errorf("%q", got)
	}
	// Under another name it is another source; unless said otherwise.
	other := writeFile(t, content)
	r = run(t, "", "append", "--cursor", url, other)
	if r.status != 1 || !strings.Contains(r.err, file) || !strings.Contains(r.err, other) || !strings.Contains(r.err, "--source") {
		t.Errorf("another source: status %d: %s", r.status, r.err)
	}
	must(t, "", "append", "--cursor", "--source", file, url, other)
	// Standard input too.
	must(t, content+"e\n", "append", "--cursor", "--source", file, url)
	content += "e\n"
	if got := must(t, "", "cat", "--format", "raw", url); got != content {
		t.Errorf("%q", got)
	}
	// Shorter, other, otherwise cut.
	for says, change := range map[string]string{"has only 3 bytes now, and 11 of it": "a\nb", "the first 11 bytes": "A" + content[1:]} {
		if err := os.WriteFile(file, []byte(change), 0o600); err != nil {
			t.Fatal(err)
		}
		if r := run(t, "", "append", "--cursor", url, file); r.status != 1 || !strings.Contains(r.err, says) {
			t.Errorf("%s: status %d: %s", says, r.status, r.err)
		}
	}
	if r := run(t, content, "append", "--cursor", "--source", file, "--format", "frames", url); r.status != 1 || !strings.Contains(r.err, "--format lines") {
		t.Errorf("as frames: status %d: %s", r.status, r.err)
	}
	if got := must(t, "", "cat", "--format", "raw", url); got != content {
		t.Errorf("an error has changed the log: %q", got)
	}
}

// TestBacklog: what was appended since the last checkpoint is read before an append
// begins, which may take long; so it is shown, and what it came to.
func TestBacklog(t *testing.T) {
	url := newLog(t, freshURL(t))
	st := openStore(t, url)
	log, err := state.Open(t.Context(), st, nil)
	if err != nil {
		t.Fatal(err)
	}
	w, err := writer.Open(t.Context(), st, fence.NewToken(1), &writer.Options{Checkpoint: -1})
	if err != nil {
		t.Fatal(err)
	}
	// Its only manifest, which names the end of the log at that time.
	eventually(t, "the manifest of the first leader", func() bool {
		m, err := log.Newest(t.Context())
		return err == nil && m.Roles[layout.Writer].Epoch == 1
	})
	for range 5 {
		if _, err := w.Append(t.Context(), [][]byte{[]byte("a\n"), []byte("b\n")}); err != nil {
			t.Fatal(err)
		}
	}
	var out, errs buffer
	a := &kit.Kit{In: strings.NewReader("c\n"), Out: &out, Err: &errs, Open: store.Open, Patience: time.Nanosecond}
	if status := runWith(t.Context(), a, []string{"append", url}); status != 0 {
		t.Fatalf("status %d: %s", status, errs.String())
	}
	for _, says := range []string{"reading the tail of the log: ", "\nread the tail of the log: 5 objects, 10 records, ", "the log has 11 records"} {
		if !strings.Contains(errs.String(), says) {
			t.Errorf("it does not say %q: %s", says, errs.String())
		}
	}
	_ = w.Close(t.Context())
}

// TestBatchBytes is written like other sizes, and bounded by the log's limit.
func TestBatchBytes(t *testing.T) {
	url := memURL(t)
	must(t, "", "init", "--max-record", "1KiB", "--max-object", "10KiB", "--grace", "0", url)
	must(t, "a\n", "append", "--batch-bytes", "4KiB", url)
	if r := run(t, "x", "append", "--batch-bytes", "4MiB", url); r.status != 64 || !strings.Contains(r.err, "--batch-bytes is 4194304; the log's limit for an object is 10240") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
	if got := must(t, "", "cat", url); got != "a\n" {
		t.Errorf("%q", got)
	}
}

// TestLimits: what is before a record that is too long is kept, and said.
func TestLimits(t *testing.T) {
	url := memURL(t)
	must(t, "", "init", "--max-record", "10", "--max-object", "100B", "--max-cursor", "90", "--grace", "0", url)
	r := run(t, "a\nb\n"+strings.Repeat("x", 11)+"\n", "append", url)
	if r.status != 1 || !strings.Contains(r.err, "at byte 4 of standard input") || !strings.Contains(r.err, "allows 10") ||
		!strings.Contains(r.err, "appended 2 records, 4 B, up to byte 4") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
	if got := must(t, "", "cat", url); got != "a\nb\n" {
		t.Errorf("%q", got)
	}
	r = run(t, "a\n", "append", "--cursor", "--source", strings.Repeat("long", 20), url)
	if r.status != 1 || !strings.Contains(r.err, "a cursor of") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
	many := strings.Repeat("12345678\n", 1000) // no batch is larger than an object
	must(t, many, "append", url)
	if got := must(t, "", "cat", url); got != "a\nb\n"+many {
		t.Errorf("%d bytes", len(got))
	}
}

// TestKilled kills the command with SIGKILL in the midst of a stream, again and
// again, and starts it anew with the same stream.
func TestKilled(t *testing.T) {
	url := newLog(t, fileURL(t))
	var content strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&content, "record %d of a stream whose writer is killed\n", i)
	}
	want := content.String()
	const kills = 3
	for i := range kills + 1 {
		c := command(t, "append", "--cursor", "--source", "stream", "--validity", "500ms", url)
		var errs buffer
		c.Stderr = &errs
		in, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if i == kills {
			if _, err := io.WriteString(in, want); err != nil {
				t.Fatal(err)
			}
			if err := in.Close(); err != nil {
				t.Fatal(err)
			}
			if err := c.Wait(); err != nil {
				t.Fatalf("%v: %s", err, errs.String())
			}
			break
		}
		before := len(contents(t, url))
		// It gets a part, is seen to append some of it, and dies.
		part := want[:len(want)*(i+1)/(kills+1)]
		go func() { _, _ = io.WriteString(in, part) }()
		eventually(t, "records appended: "+errs.String(), func() bool { return len(contents(t, url)) > before })
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := c.Wait(); err == nil {
			t.Fatal("it was not killed")
		}
	}
	if got := must(t, "", "cat", url); got != want {
		t.Errorf("the log has %d bytes, not the %d of the stream", len(got), len(want))
	}
	if r := run(t, "", "verify", url); r.status != 0 {
		t.Errorf("%s", r.out)
	}
}

// TestInterrupted: SIGINT lets go of the lock at once, and all that was read is
// settled.
func TestInterrupted(t *testing.T) {
	for signal, status := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		t.Run(signal.String(), func(t *testing.T) {
			url := newLog(t, fileURL(t))
			c := command(t, "append", url)
			var errs buffer
			c.Stderr = &errs
			in, err := c.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(in, "a\nb\nhalf a line"); err != nil {
				t.Fatal(err)
			}
			eventually(t, "two records appended", func() bool { return contents(t, url) == "a\nb\n" })
			if err := c.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if got := exitStatus(t, c.Wait()); got != status {
				t.Errorf("status %d, want %d", got, status)
			}
			if got := errs.String(); !strings.Contains(got, "appended 2 records, 4 B, up to byte 4") || !strings.Contains(got, "ended by signal") {
				t.Errorf("it says: %s", got)
			}
			if got := must(t, "", "status", url); !strings.Contains(got, "resigned") {
				t.Errorf("the lock is still held:\n%s", got)
			}
		})
	}
}

// A leader whose store hangs works on its end for up to 25 s. A second signal ends the process at
// once. But one in the first second counts as a copy of the first: timeout(1) sends its signal
// to the process and to its group, and the leader must still hand over.
func TestSecondSignal(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	srv := s3stub.Start(nil)
	t.Cleanup(srv.Close)
	url := newLog(t, srv.StoreURL())
	c := command(t, "append", url)
	var errs buffer
	c.Stderr = &errs
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, "a\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a record appended", func() bool { return contents(t, url) == "a\n" })
	hang := make(chan struct{})
	defer close(hang)
	srv.SetFault(func(*s3stub.Request) *s3stub.Fault { return &s3stub.Fault{Wait: hang} })
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	began := time.Now()
	for {
		_ = c.Process.Signal(syscall.SIGTERM) // an error if it has ended
		select {
		case err = <-ended:
		case <-time.After(20 * time.Millisecond):
			continue
		}
		break
	}
	took := time.Since(began)
	exit, _ := errors.AsType[*exec.ExitError](err)
	if exit == nil || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM || took < time.Second {
		t.Errorf("it ended after %v: %v, and said %s", took, err, errs.String())
	}
}

// start runs an append in the background, with an input that is still open.
func start(t *testing.T, open func(context.Context, string) (store.Store, error), args ...string) (in *io.PipeWriter, errs *buffer, ended <-chan result) {
	t.Helper()
	r, in := io.Pipe()
	t.Cleanup(func() { _ = in.Close() })
	errs = new(buffer)
	var out buffer
	a := &kit.Kit{In: r, Out: &out, Err: errs, Open: open}
	done := make(chan result, 1)
	go func() {
		status := runWith(t.Context(), a, append([]string{"append"}, args...))
		done <- result{status, out.String(), errs.String()}
	}()
	return in, errs, done
}

// TestFrugal: with it, records that come one by one share objects.
func TestFrugal(t *testing.T) {
	t.Parallel()
	objects := func(args ...string) (n int, took time.Duration) {
		url := newLog(t, memURL(t))
		in, errs, ended := start(t, store.Open, append(args, url)...)
		eventually(t, "a leader", func() bool { return strings.Contains(errs.String(), "leading in epoch") })
		began := time.Now()
		for range 50 {
			if _, err := io.WriteString(in, "record\n"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond)
		}
		in.Close()
		if r := <-ended; r.status != 0 {
			t.Fatalf("%+v", r)
		}
		took = time.Since(began)
		var tail struct{ Epoch, Sequence int }
		status := must(t, "", "status", url)
		_, after, _ := strings.Cut(status, "\ntail ")
		if _, err := fmt.Sscanf(after, "%d/%d", &tail.Epoch, &tail.Sequence); err != nil {
			t.Fatalf("%v: %s", err, status)
		}
		return tail.Sequence, took
	}
	n, took := objects("--frugal")
	if most := 3 + writer.Frugal*took.Seconds() + 2; float64(n) > most { // those of a pause, and the last one
		t.Errorf("%d objects in %v; at most %.0f were to be sent", n, took, most)
	}
	if n, _ := objects(); n < 25 {
		t.Errorf("%d objects without it: the test tests nothing", n)
	}
}

// TestWaits: a second one says whom it waits for and how long at most, and takes
// over when the first has gone.
func TestWaits(t *testing.T) {
	url := newLog(t, memURL(t))
	first, errs, firstEnded := start(t, store.Open, "--validity", "3s", url)
	eventually(t, "a leader", func() bool { return strings.Contains(errs.String(), "leading in epoch 1") })
	second, errs, secondEnded := start(t, store.Open, url)
	eventually(t, "a word on whom it waits for", func() bool {
		return strings.Contains(errs.String(), "which leads in epoch 1 since") && strings.Contains(errs.String(), "for 3s at most")
	})
	if status := must(t, "", "status", url); !strings.Contains(status, "epoch 1, since") || !strings.Contains(status, "validity 3s") {
		t.Errorf("%s", status)
	}
	for _, c := range []struct {
		in    *io.PipeWriter
		text  string
		ended <-chan result
	}{{first, "first\n", firstEnded}, {second, "second\n", secondEnded}} {
		if _, err := io.WriteString(c.in, c.text); err != nil {
			t.Fatal(err)
		}
		_ = c.in.Close()
		if r := <-c.ended; r.status != 0 {
			t.Fatalf("status %d: %s", r.status, r.err)
		}
	}
	if got := must(t, "", "cat", url); got != "first\nsecond\n" {
		t.Errorf("%q", got)
	}
	if out := must(t, "", "step-down", url); out != "" {
		t.Errorf("deposed nobody: %s", out)
	}
}

// TestDeposed: a leader that is made to step down goes on in a later epoch, with
// and without a cursor, as long as it is certain what the log has.
func TestDeposed(t *testing.T) {
	for _, flags := range [][]string{nil, {"--cursor", "--source", "x"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			url := newLog(t, memURL(t))
			in, errs, ended := start(t, store.Open, append(flags, "--validity", "3s", url)...)
			if _, err := io.WriteString(in, "a\nb\n"); err != nil {
				t.Fatal(err)
			}
			eventually(t, "two records", func() bool { return contents(t, url) == "a\nb\n" })
			if got := must(t, "", "step-down", "--immediate", "--reason", "for a test", url); !strings.Contains(got, "of epoch 1") {
				t.Error(got)
			}
			eventually(t, "another term", func() bool { return strings.Contains(errs.String(), "leading in epoch 2") })
			if !strings.Contains(errs.String(), "leader: deposed") {
				t.Error(errs.String())
			}
			if _, err := io.WriteString(in, "c\n"); err != nil {
				t.Fatal(err)
			}
			_ = in.Close()
			if r := <-ended; r.status != 0 || !strings.Contains(r.err, "appended 3 records") {
				t.Errorf("status %d: %s", r.status, r.err)
			}
			if got := must(t, "", "cat", url); got != "a\nb\nc\n" {
				t.Errorf("%q", got)
			}
		})
	}
}

// mute is a store that applies the objects of the log's first epoch from some slot on,
// and gives no answer.
type mute struct{ store.Store }

func (m *mute) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	if p, ok := layout.ParseDataKey(key); ok && p.Epoch == 1 && p.Seq > 1 && len(body) > frame.HeaderSize {
		_, _ = m.Store.Put(ctx, key, body, opts)
		<-ctx.Done()
		return store.Info{}, &store.Error{Op: "put", Key: key, Err: ctx.Err()}
	}
	return m.Store.Put(ctx, key, body, opts)
}

// TestUnknown: without a cursor an append whose outcome is unknown ends, with a
// status of its own, and says what is known. With one it goes on: see TestLostTerm of feed.
func TestUnknown(t *testing.T) {
	url := newLog(t, memURL(t))
	open := func(ctx context.Context, url string) (store.Store, error) {
		st, err := store.Open(ctx, url)
		return &mute{st}, err
	}
	in, _, ended := start(t, open, "--validity", "3s", url)
	for _, text := range []string{"a\n", "b\n"} {
		before := contents(t, url)
		if _, err := io.WriteString(in, text); err != nil {
			t.Fatal(err)
		}
		eventually(t, "another record", func() bool { return contents(t, url) == before+text })
	}
	must(t, "", "step-down", "--immediate", url)
	r := <-ended
	if r.status != 3 || !strings.Contains(r.err, "1 records are certainly in the log, up to byte 2") || !strings.Contains(r.err, "unknown whether the next 1 are, up to byte 4") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
}

// TestUnknownAtASignal: what is unknown is said, and has its status, also if a signal ends it.
func TestUnknownAtASignal(t *testing.T) {
	url := newLog(t, memURL(t))
	ctx, cancel := context.WithCancelCause(t.Context())
	r, in := io.Pipe()
	var out, errs buffer
	a := &kit.Kit{In: r, Out: &out, Err: &errs, Open: func(ctx context.Context, url string) (store.Store, error) {
		st, err := store.Open(ctx, url)
		return &mute{st}, err
	}}
	ended := make(chan int)
	go func() { ended <- runWith(ctx, a, []string{"append", "--validity", "1s", url}) }()
	for _, text := range []string{"a\n", "b\n"} {
		before := contents(t, url)
		if _, err := io.WriteString(in, text); err != nil {
			t.Fatal(err)
		}
		eventually(t, "another record", func() bool { return contents(t, url) == before+text })
	}
	cancel(&kit.InterruptedError{Signal: syscall.SIGTERM})
	if got := <-ended; got != 3 || !strings.Contains(errs.String(), "unknown whether the next 1 are, up to byte 4") {
		t.Errorf("status %d: %s", got, &errs)
	}
}

// TestAppendToAnotherLog: the log is deleted between two terms, and the next one makes another. What was acknowledged
// before is not in it.
func TestAppendToAnotherLog(t *testing.T) {
	url := newLog(t, memURL(t))
	in, errs, ended := start(t, store.Open, "--validity", "300ms", url)
	if _, err := io.WriteString(in, "a\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a record", func() bool { return contents(t, url) == "a\n" })
	st := openStore(t, url)
	for info, err := range st.List(t.Context(), "", nil) {
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Delete(t.Context(), info.Key); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the next term", func() bool { return strings.Count(errs.String(), "leading in epoch 1") == 2 })
	go func() { _, _ = io.WriteString(in, "b\n") }()
	// Or the first term's checkpoint came after the deletion: then there is a manifest without a log.
	if r := <-ended; (r.status != 1 || !strings.Contains(r.err, "there is another log at "+url)) && (r.status != 65 || !strings.Contains(r.err, "format.json: it is missing")) {
		t.Errorf("status %d: %s", r.status, errs)
	}
}

// TestAppendMakesTheLog, with the probe that cannot be left out.
func TestAppendMakesTheLog(t *testing.T) {
	url := memURL(t)
	must(t, "a\n", "append", url)
	if s := parsed[survey.Log](t, "status", "--json", url); s.Probe == nil || len(s.Probe.Kept) < 5 || s.Probe.At.IsZero() {
		t.Errorf("%+v", s)
	}
}
