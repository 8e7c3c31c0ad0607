package main

import (
	"context"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
)

// TestStatusSeesAnotherKind: status --watch sees a log that is made beside a lock, and that the log is deleted.
func TestStatusSeesAnotherKind(t *testing.T) {
	url := memURL(t)
	leadAlone(t, url, "ann")
	ctx, cancel := context.WithCancel(t.Context())
	var out, errs buffer
	a := &kit.Kit{In: strings.NewReader(""), Out: &out, Err: &errs, Open: store.Open}
	ended := make(chan int)
	go func() { ended <- runWith(ctx, a, []string{"status", "--watch", "--json", "--interval", "5ms", url}) }()
	lines := func(n int, kind string) func() bool {
		return func() bool {
			all := strings.Split(out.String(), "\n")
			return len(all) > n && strings.HasPrefix(all[n-1], `{"kind":"`+kind+`"`)
		}
	}
	eventually(t, "the lock", lines(1, "lock"))
	newLog(t, url)
	eventually(t, "the log", lines(2, "log"))
	if err := openStore(t, url).Delete(t.Context(), layout.FormatKey); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the lock again", lines(3, "lock"))
	cancel()
	<-ended
}

// TestAwaitBesideALock: a verb that waits for a log sees one that is made where exec runs.
func TestAwaitBesideALock(t *testing.T) {
	url := memURL(t)
	leadAlone(t, url, "ann")()
	ctx, cancel := context.WithCancel(t.Context())
	var out, errs buffer
	a := &kit.Kit{In: strings.NewReader(""), Out: &out, Err: &errs, Open: store.Open}
	ended := make(chan int)
	go func() { ended <- runWith(ctx, a, []string{"cat", "--follow", url}) }()
	eventually(t, "it waits", func() bool { return strings.Contains(errs.String(), "there is no log yet") })
	appendOne(t, url)
	eventually(t, "it reads the log", func() bool { return out.String() == "one\n" })
	cancel()
	<-ended
}

// TestAwaitBesideALog: whoever waits for a group where there is a log is told so.
func TestAwaitBesideALog(t *testing.T) {
	url := newLog(t, memURL(t))
	ctx, cancel := context.WithCancel(t.Context())
	var out, errs buffer
	a := &kit.Kit{In: strings.NewReader(""), Out: &out, Err: &errs, Open: store.Open}
	ended := make(chan int)
	go func() { ended <- runWith(ctx, a, []string{"compact", "--watch", "--group", url}) }()
	eventually(t, "it waits", func() bool { return strings.Contains(errs.String(), "there is no group yet") })
	if !strings.Contains(errs.String(), "there is a log at "+url+"; it needs no --group") {
		t.Error(errs.String())
	}
	cancel()
	<-ended
}
