package main

import (
	"context"
	"io"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	lagverb "github.com/fencepost/fencepost/cmd/fencepost/internal/verb/lag"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
)

// TestConsumer: each cat goes on where the last one was, and the later of two goes on.
func TestConsumer(t *testing.T) {
	log := newLog(t, memURL(t))
	must(t, "a\nb\n", "append", log)
	if got := must(t, "", "cat", "--consumer", "mail", log); got != "a\nb\n" {
		t.Errorf("%q", got)
	}
	if got := must(t, "", "cat", "--consumer", "mail", log); got != "" {
		t.Errorf("a second time: %q", got)
	}
	must(t, "c\n", "append", log)
	if got := must(t, "", "cat", "--consumer", "mail", log); got != "c\n" {
		t.Errorf("%q", got)
	}
	if got := must(t, "", "cat", "--consumer", "mail", "--from", "1", log); got != "b\nc\n" {
		t.Errorf("--from: %q", got)
	}
	if got := must(t, "", "cat", "--consumer", "mail", "--epoch", "100", log); got != "" {
		t.Errorf("%q", got)
	}
	if r := run(t, "", "cat", "--consumer", "mail", "--epoch", "99", log); r.status != kit.ExitFenced || !strings.Contains(r.err, "epoch 100") {
		t.Errorf("status %d, %s", r.status, r.err)
	}
}

// TestLagOfConsumers: lag says where each named consumer is, and how far behind.
func TestLagOfConsumers(t *testing.T) {
	log := newLog(t, memURL(t))
	must(t, "a\nb\n", "append", log)
	if got := must(t, "", "lag", log); strings.Contains(got, "consumer") {
		t.Errorf("without consumers:\n%s", got)
	}
	must(t, "", "cat", "--consumer", "mail", log)
	must(t, "c\n", "append", log)
	must(t, "", "cat", "--consumer", "audit", log)
	got := must(t, "", "lag", log)
	for _, want := range []string{"\nconsumer audit  at 3; 0 records behind\n", "\nconsumer mail   at 2; 1 record behind, the next one has waited for "} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	d := parsed[lagverb.Doc](t, "lag", "--json", log)
	if len(d.Consumers) != 2 || d.Consumers[0].Name != "audit" || d.Consumers[0].Behind != 0 || d.Consumers[1].At != 2 || d.Consumers[1].Behind != 1 || d.Consumers[1].Next.IsZero() {
		t.Errorf("%s", must(t, "", "lag", "--json", log))
	}
}

// TestLagOfAStaleConsumer: retention has overtaken a consumer. The others are shown all the same.
func TestLagOfAStaleConsumer(t *testing.T) {
	log := newLog(t, memURL(t))
	must(t, "a\nb\n", "append", log)
	must(t, "", "cat", "--consumer", "mail", log)
	must(t, "c\nd\ne\n", "append", log)
	must(t, "", "cat", "--consumer", "audit", log)
	must(t, "", "compact", log)
	must(t, "", "truncate", "--before", "4", log)
	got := must(t, "", "lag", log)
	for _, want := range []string{"\nconsumer audit  at 5; 0 records behind\n", "\nconsumer mail   at 2; 3 records behind, but those before 4 are gone\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if d := parsed[lagverb.Doc](t, "lag", "--json", log); len(d.Consumers) != 2 || d.Consumers[1].First != 4 {
		t.Errorf("%s", must(t, "", "lag", "--json", log))
	}
}

// TestConsumerIsToldToEnd: a cat that does not follow, and is told to end, has written its position.
func TestConsumerIsToldToEnd(t *testing.T) {
	log := newLog(t, fileURL(t))
	must(t, strings.Repeat(strings.Repeat("x", 1000)+"\n", 2000), "append", log)
	c := command(t, "cat", "--consumer", "mail", log)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 1001)
	if _, err := io.ReadFull(out, first); err != nil {
		t.Fatal(err)
	}
	_ = c.Process.Signal(syscall.SIGTERM)
	rest, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	printed := (len(first) + len(rest)) / 1001
	_ = c.Wait()
	if got := strings.Count(must(t, "", "cat", "--consumer", "mail", log), "\n"); got != 2000-printed {
		t.Errorf("%d records were printed, and the next one prints %d of 2000", printed, got)
	}
}

// TestConsumerFollows: a cat that follows and is told to end has written its position, and so has
// one that is killed, up to a second.
func TestConsumerFollows(t *testing.T) {
	log := newLog(t, fileURL(t))
	must(t, "a\nb\n", "append", log)
	c := command(t, "cat", "--follow", "--consumer", "mail", log)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	_ = c.Process.Signal(syscall.SIGTERM)
	if got := exitStatus(t, c.Wait()); got != 143 {
		t.Errorf("status %d", got)
	}
	if got := must(t, "", "cat", "--consumer", "mail", log); got != "" {
		t.Errorf("%q", got)
	}
}

// TestConsumerCannotWrite: cat is told to end, and its last position cannot be written. It says so.
func TestConsumerCannotWrite(t *testing.T) {
	log := newLog(t, memURL(t))
	must(t, "a\n", "append", log)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	st := faultstore.New(openStore(t, log), nil)
	var opened atomic.Bool
	st.SetHook(func(op faultstore.Op) faultstore.Fault {
		switch {
		case op.Kind != faultstore.Put || !opened.Swap(true):
			return faultstore.Fault{}
		case ctx.Err() == nil:
			return faultstore.Fault{Drop: true, Hang: true}
		}
		return faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}
	})
	var out, errs buffer
	a := &kit.Kit{In: strings.NewReader(""), Out: &out, Err: &errs, Open: func(context.Context, string) (store.Store, error) { return st, nil }}
	ended := make(chan int)
	go func() { ended <- runWith(ctx, a, []string{"cat", "--follow", "--consumer", "mail", log}) }()
	eventually(t, "the record", func() bool { return out.String() == "a\n" })
	cancel(&kit.InterruptedError{Signal: syscall.SIGTERM})
	if got := <-ended; got != 143 || !strings.Contains(errs.String(), "the position of mail is not written") {
		t.Errorf("status %d: %s", got, &errs)
	}
}

func TestConsumerUsage(t *testing.T) {
	log := newLog(t, memURL(t))
	for args, says := range map[string]string{
		"--epoch 5": "--consumer", "--consumer a/b": "letters, digits", "--consumer x --epoch 0": "from 1 on", "--consumer=": "--consumer is empty",
	} {
		if r := run(t, "", append(strings.Fields("cat "+args), log)...); r.status != 64 || !strings.Contains(r.err, says) {
			t.Errorf("%s: status %d, %s", args, r.status, r.err)
		}
	}
}
