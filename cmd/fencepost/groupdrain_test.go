package main

import (
	"bytes"
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/probe"
)

func adaOwnsAll(t *testing.T, url string) {
	t.Helper()
	eventually(t, "ada owns all", func() bool {
		d := parsed[survey.Group](t, "group", "status", "--json", url)
		return len(d.Members) == 1 && d.Members[0].Owned == 8
	})
}

// TestGroupDrainOfTheDead: where no member is live any more, nobody can make one leave. Drain says so and fails.
func TestGroupDrainOfTheDead(t *testing.T) {
	url := memURL(t)
	var down atomic.Bool
	st, err := whileUp(&down)(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	w := &workers{t: t, st: st, validity: time.Second}
	w.add("ada")
	adaOwnsAll(t, url)
	down.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	var out, errs buffer
	a := &kit.Kit{In: strings.NewReader(""), Out: &out, Err: &errs, Open: store.Open, Patience: 50 * time.Millisecond}
	status := runWith(ctx, a, []string{"group", "drain", url, "ada"})
	for _, want := range []string{"told ada (", "to leave. That takes three validities of 1s at most", "no member of the group sends heartbeats", "8 partitions (0-7)", "Start a worker"} {
		if status != kit.ExitFailed || !strings.Contains(errs.String(), want) {
			t.Errorf("status %d, no %q in %s", status, want, errs.String())
		}
	}
}

// TestGroupDrainSays: while the work of a member has not returned, drain says again and again for what it waits.
func TestGroupDrainSays(t *testing.T) {
	url := memURL(t)
	w := newGroup(t, url)
	returns := make(chan struct{})
	g, err := group.Join(t.Context(), w.st, &group.Options{
		Partitions: 8, Validity: 3 * time.Second, Drain: time.Minute, Identity: "ada",
		Probe: &probe.Options{Clients: 2, Rounds: 1, Keys: 1, Refusals: 2, UploadSize: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- g.Run(t.Context(), func(ctx context.Context, _ *group.Partition) error {
			<-ctx.Done()
			<-returns
			return nil
		})
	}()
	adaOwnsAll(t, url)
	var out, errs buffer
	a := &kit.Kit{In: strings.NewReader(""), Out: &out, Err: &errs, Open: store.Open, Patience: 20 * time.Millisecond}
	drained := make(chan int, 1)
	go func() { drained <- runWith(t.Context(), a, []string{"group", "drain", url, "ada"}) }()
	eventually(t, "it says for what it waits", func() bool {
		return strings.Count(errs.String(), "until ada (") > 3 && strings.Contains(errs.String(), "it owns 8 partitions (0-7); no other member is live, so nobody will own what it leaves")
	})
	close(returns)
	if status := <-drained; status != 0 || !strings.HasSuffix(out.String(), "has left\n") {
		t.Errorf("status %d, %s%s", status, out.String(), errs.String())
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestGroupStatusThroughAnOutage: group status --watch says that the store fails, goes on, and prints nothing twice.
func TestGroupStatusThroughAnOutage(t *testing.T) {
	url := memURL(t)
	w := newGroup(t, url)
	w.add("ada")
	adaOwnsAll(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	var down atomic.Bool
	var out, errs buffer
	a := &kit.Kit{In: strings.NewReader(""), Out: &out, Err: &errs, Open: whileUp(&down)}
	ended := make(chan int)
	go func() { ended <- runWith(ctx, a, []string{"group", "status", "--watch", "--json", url}) }()
	eventually(t, "the first state", func() bool { return out.String() != "" })
	down.Store(true)
	eventually(t, "it says so", func() bool { return strings.Contains(errs.String(), "out of order; looking again in 1s") })
	down.Store(false)
	w.add("bob")
	eventually(t, "another state", func() bool { return strings.Contains(out.String(), `"bob"`) })
	cancel()
	<-ended
	var last []byte
	for l := range bytes.Lines([]byte(out.String())) {
		if bytes.Equal(l, last) {
			t.Errorf("it prints twice %s", l)
		}
		last = l
	}
}
