package push_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/agent/push"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

// fed is a log whose writers a feed watches.
type fed struct {
	*logtest.Log
	feed *push.Feed
	st   store.Store
}

func newFed(t *testing.T) *fed {
	l := logtest.New(t, logtest.Format(), nil)
	f := push.NewFeed(clock.Go())
	return &fed{l, f, f.Store(l.Faulty.Client("leader"))}
}

func (f *fed) open(o writer.Options) *writer.Writer {
	f.Helper()
	f.Epoch++
	o.Settle, o.Hooks.Acknowledged = logtest.Quick, f.feed.Acknowledged
	w, err := writer.Open(context.Background(), f.st, fence.NewToken(f.Epoch), &o)
	if err != nil {
		f.Fatal(err)
	}
	return w
}

// got is what a feed has sent.
type got struct {
	mu      sync.Mutex
	objects [][]byte
	beats   int
}

func (g *got) send(o []byte) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if o == nil {
		g.beats++
	} else {
		g.objects = append(g.objects, o)
	}
	return nil
}

// tail follows the feed until stop is called, which returns how that ended.
func (f *fed) tail(at fence.Position, g *got) (stop func() error) {
	ctx, cancel := context.WithCancel(f.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.feed.Tail(ctx, at, g.send) }()
	synctest.Wait()
	return func() error {
		cancel()
		return <-ended
	}
}

func sound() error { return nil }

// A feed sends what is in the log, in order, and nothing before the writer has acknowledged it.
func TestFeedSendsWhatIsAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFed(t)
		w := f.open(writer.Options{})
		end := f.feed.Begin(f.Epoch, sound)
		g := &got{}
		stop := f.tail(logtest.At(1, 1), g)
		for i := range 20 {
			f.Append(w, fmt.Sprint(i))
			synctest.Wait()
			if len(g.objects) != i+1 {
				t.Fatalf("%d objects after %d appends", len(g.objects), i+1)
			}
		}
		for i, o := range g.objects {
			if key := fmt.Sprintf("data/%020d/%020d", 1, i+1); !slices.Equal(o, f.Body(key)) {
				t.Errorf("object %d is not that of the store", i)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if g.beats < 25 || g.beats > 35 {
			t.Errorf("%d beats in a minute", g.beats)
		}
		end()
		synctest.Wait()
		if err := stop(); !errors.Is(err, push.ErrIdle) {
			t.Error(err)
		}
		f.Close(w)
	})
}

// What an old leader has sent, and was never acknowledged, is not sent to readers, whatever became of it.
func TestFeedOfAZombie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFed(t)
		w := f.open(writer.Options{})
		defer f.feed.Begin(1, sound)()
		g := &got{}
		stop := f.tail(logtest.At(1, 1), g)
		f.Append(w, "a")
		next := f.Log.Open(nil) // of another process
		if _, err := w.Append(t.Context(), [][]byte{[]byte("zombie")}); !errors.Is(err, writer.ErrFenced) {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(g.objects) != 1 {
			t.Errorf("%d objects", len(g.objects))
		}
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		f.Close(next)
		_ = w.Close(t.Context())
	})
}

// guard:feed-leads. Without this check: a leader is cut off from the store, and loses its term; its readers go on to hear that
// there is no more, and do not see what the next leader appends for as long as this process lives.
func TestFeedIsSilentWhenTheTermIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFed(t)
		lost := errors.New("the term is over")
		var over atomic.Bool
		f.feed.Begin(1, func() error {
			if over.Load() {
				return lost
			}
			return nil
		})
		g := &got{}
		stop := f.tail(logtest.At(1, 1), g)
		over.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		if err := stop(); g.beats != 1 || !errors.Is(err, push.ErrIdle) || !errors.Is(err, lost) {
			t.Errorf("%d beats, %v", g.beats, err)
		}
	})
}

// A reader that is too far behind, or in another epoch, is told so. What a feed keeps is bounded.
func TestFeedBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFed(t)
		w := f.open(writer.Options{NoCompress: true})
		defer f.feed.Begin(1, sound)()
		f.Append(w, "before anybody listened")
		if err := f.tail(logtest.At(1, 1), &got{})(); !errors.Is(err, push.ErrBehind) {
			t.Error(err)
		}
		if err := f.tail(logtest.At(2, 1), &got{})(); !errors.Is(err, push.ErrBehind) {
			t.Error(err)
		}
		g := &got{}
		stop := f.tail(logtest.At(1, 2), g)
		big := make([]byte, 1<<20)
		for range 40 {
			if _, err := w.Append(t.Context(), [][]byte{big}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if len(g.objects) != 40 {
			t.Errorf("%d objects", len(g.objects))
		}
		if err := f.tail(logtest.At(1, 2), &got{})(); !errors.Is(err, push.ErrBehind) {
			t.Error("a feed keeps everything:", err)
		}
		late := &got{}
		if err := f.tail(logtest.At(1, 30), late)(); !errors.Is(err, context.Canceled) || len(late.objects) != 12 {
			t.Errorf("%v, %d objects", err, len(late.objects))
		}
		// A reader may have found in the store what the writer does not know yet.
		ahead := &got{}
		stopAhead := f.tail(logtest.At(1, 43), ahead)
		for i := range 3 {
			f.Append(w, fmt.Sprint(i))
		}
		synctest.Wait()
		if err := stopAhead(); len(ahead.objects) != 2 {
			t.Errorf("%d objects, %v", len(ahead.objects), err)
		}
		_ = stop()
		f.Close(w)
	})
}

// A reader that reads slowly keeps one object from being forgotten, and not all that the feed had when it came.
func TestFeedOfASlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFed(t)
		w := f.open(writer.Options{NoCompress: true})
		defer f.feed.Begin(1, sound)()
		quick := &got{}
		stop := f.tail(logtest.At(1, 1), quick)
		big := make([]byte, 1<<20)
		appends := func(n int) {
			for range n {
				if _, err := w.Append(t.Context(), [][]byte{big}); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
		}
		appends(10)
		read, slow := make(chan struct{}), 0
		ended := make(chan error, 1)
		go func() {
			ended <- f.feed.Tail(t.Context(), logtest.At(1, 1), func([]byte) error {
				slow++
				<-read
				return nil
			})
		}()
		synctest.Wait()
		appends(40)
		close(read)
		if err := <-ended; !errors.Is(err, push.ErrBehind) || slow > 1 {
			t.Errorf("%d objects, %v", slow, err)
		}
		_ = stop()
		f.Close(w)
	})
}

// A feed whose readers have left keeps nothing, also if no more is appended.
func TestFeedForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFed(t)
		w := f.open(writer.Options{})
		defer f.feed.Begin(1, sound)()
		stop := f.tail(logtest.At(1, 1), &got{})
		f.Append(w, "a")
		_ = stop()
		time.Sleep(30 * time.Second) // it was only cut off
		again := &got{}
		if _ = f.tail(logtest.At(1, 1), again)(); len(again.objects) != 1 {
			t.Errorf("%d objects", len(again.objects))
		}
		time.Sleep(2 * time.Minute)
		if err := f.tail(logtest.At(1, 1), &got{})(); !errors.Is(err, push.ErrBehind) {
			t.Error(err)
		}
		f.Close(w)
	})
}

// An announcement fits into a lock, and other text is none.
func TestAnnouncement(t *testing.T) {
	a := push.Announcement{Tail: "h:1", Cert: "c", Token: "t", Agent: "unix:/a", Host: "h"}
	if got := push.Parse(a.String()); got != a || (push.Announcement{}).String() != "" || push.Parse("tcp://else") != (push.Announcement{}) || push.Parse("") != (push.Announcement{}) {
		t.Errorf("%+v", got)
	}
}
