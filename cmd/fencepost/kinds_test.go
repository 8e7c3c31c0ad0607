package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
)

// TestStatusSeesAnotherKind: status --watch sees a log that is made beside a lock, and that the log is deleted.
func TestStatusSeesAnotherKind(t *testing.T) {
	url := memURL(t)
	leadAlone(t, url, "ann")
	ctx, cancel := context.WithCancel(t.Context())
	var out, errs buffer
	a := &app{in: strings.NewReader(""), out: &out, err: &errs, open: store.Open}
	ended := make(chan int)
	go func() { ended <- a.run(ctx, []string{"status", "--watch", "--json", "--interval", "5ms", url}) }()
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
	a := &app{in: strings.NewReader(""), out: &out, err: &errs, open: store.Open}
	ended := make(chan int)
	go func() { ended <- a.run(ctx, []string{"cat", "--follow", url}) }()
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
	a := &app{in: strings.NewReader(""), out: &out, err: &errs, open: store.Open}
	ended := make(chan int)
	go func() { ended <- a.run(ctx, []string{"compact", "--watch", "--group", url}) }()
	eventually(t, "it waits", func() bool { return strings.Contains(errs.String(), "there is no group yet") })
	if !strings.Contains(errs.String(), "there is a log at "+url+"; it needs no --group") {
		t.Error(errs.String())
	}
	cancel()
	<-ended
}

// TestTopOnceIsQuick: one look at several URLs does not wait for a budget that is for hours of looks.
func TestTopOnceIsQuick(t *testing.T) {
	var urls []string
	for _, name := range []string{"a", "b", "c", "d"} {
		url := newLog(t, memURL(t)+"/"+name)
		must(t, "one\n", "append", url)
		urls = append(urls, url)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if r := inProcess(ctx, nil, append([]string{"top", "--once"}, urls...)...); r.status != 0 || strings.Count(r.out, "1, of these 0 folded") != 4 {
		t.Errorf("%+v", r)
	}
}

// TestTopOnceSays: with a bound, one look says for what it waits, and why.
func TestTopOnceSays(t *testing.T) {
	a, b := newLog(t, memURL(t)+"/a"), newLog(t, memURL(t)+"/b")
	ctx, cancel := context.WithCancelCause(t.Context())
	var out, errs buffer
	c := &app{in: strings.NewReader(""), out: &out, err: &errs, open: store.Open, patience: 10 * time.Millisecond}
	ended := make(chan int)
	go func() { ended <- c.run(ctx, []string{"top", "--once", "--requests-per-minute", "2", a, b}) }()
	eventually(t, "it says so", func() bool {
		return strings.Contains(errs.String(), "to read 2 of 2: "+a+", "+b+". 2 requests so far: --requests-per-minute allows 2 in a minute")
	})
	cancel(&interrupted{15})
	if status := <-ended; status != 143 {
		t.Errorf("status %d", status)
	}
}
