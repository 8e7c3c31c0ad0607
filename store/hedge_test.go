package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
)

// warm is how many requests a hedge has seen before a test, of which each took
// usual; so it has a budget of two.
const (
	warm    = 40
	usual   = 10 * time.Millisecond
	tooLate = usual + 1 // then the second request is sent
)

// hedged is inWorld with a hedge that knows what is late. The rules are for key k.
func hedged(t *testing.T, rules []faultstore.Rule, f func(*world)) {
	t.Helper()
	for i := range rules {
		rules[i].Prefix = "k"
	}
	rules = append(rules, faultstore.Rule{Prefix: "warm/", Times: -1, Fault: faultstore.Fault{Delay: usual}})
	inWorld(t, rules, func(w *world) {
		w.write.Hedge = &store.Hedge{Quantile: 0.95}
		for i := range warm {
			if _, err := store.Create(w.Context(), w.st, fmt.Sprint("warm/", i), []byte("x"), w.write); err != nil {
				t.Fatal(err)
			}
		}
		w.st.puts, w.st.gets = nil, nil
		f(w)
	})
}

// took checks how long something took.
func (w *world) took(start time.Time, want time.Duration) {
	w.Helper()
	if took := time.Since(start); took != want {
		w.Errorf("it took %v, want %v", took, want)
	}
}

// createdIn creates the object and checks how long that took.
func (w *world) createdIn(want time.Duration) {
	w.Helper()
	start := time.Now()
	w.created()
	w.took(start, want)
}

var (
	never   = faultstore.Fault{Drop: true, Hang: true} // no answer, and nothing applied
	slow    = faultstore.Fault{Delay: time.Hour}
	lateAck = faultstore.Fault{ReplyDelay: time.Hour} // applied at once
)

// The first request is late: the second one commits, as soon as it is answered.
//
// guard:hedge-look. A late create is sent a second time, and its key is read meanwhile. An empty key or
// a failed read decides nothing: a request may still be answered. Without this rule: A's create is
// late, so A sends it again, and reads the key, which is empty; A takes this for the answer, and
// cancels both requests, although one was almost answered; A pauses, and sends the create a third time.
func TestHedgeWins(t *testing.T) {
	for name, first := range map[string]faultstore.Fault{"slow": slow, "never": never} {
		t.Run(name, func(t *testing.T) {
			hedged(t, []faultstore.Rule{on("put", 1, first), on("put", 2, faultstore.Fault{Delay: usual})}, func(w *world) {
				w.createdIn(tooLate + usual)
				w.requests(2, 1) // guard:hedge-look. That nothing is there yet says nothing.
			})
		})
	}
}

// A request that is in time is not sent twice, nor one that failed before it was
// late: that is tried again as always.
func TestHedgeOnlyWhatIsLate(t *testing.T) {
	hedged(t, []faultstore.Rule{on("put", 1, faultstore.Fault{Delay: usual})}, func(w *world) {
		w.created()
		w.requests(1, 0)
	})
	hedged(t, []faultstore.Rule{on("put", 1, dropped)}, func(w *world) {
		w.created()
		w.requests(2, 1)
	})
}

// The first request has landed, and its answer is late: a look tells, before the
// second one can.
func TestHedgeLooks(t *testing.T) {
	hedged(t, []faultstore.Rule{on("put", 1, lateAck), on("put", 2, slow), on("get", 1, faultstore.Fault{Delay: usual})}, func(w *world) {
		w.createdIn(tooLate + usual)
		w.requests(2, 1)
	})
	// It cannot tell if it fails, or is late too.
	for _, f := range []faultstore.Fault{denied, slow} {
		hedged(t, []faultstore.Rule{on("put", 1, faultstore.Fault{ReplyDelay: 3 * usual}), on("put", 2, slow), on("get", 1, f)}, func(w *world) {
			w.createdIn(3 * usual)
			w.requests(2, 1)
		})
	}
}

// tuning:hedge-again. A seal lands behind the look and before the second request,
// while the first hangs.
func TestHedgeRefusedBehindTheLook(t *testing.T) {
	hedged(t, []faultstore.Rule{on("put", 1, never), on("put", 2, faultstore.Fault{Delay: 2 * usual})}, func(w *world) {
		time.AfterFunc(2*usual, func() { w.put("other") })
		start := time.Now()
		_, err := w.create("mine")
		w.took(start, tooLate+2*usual)
		w.refused(err, "other")
	})
}

// The first request lands behind the look and its connection is reset, while the second hangs: that is
// found out at once, as without a hedge.
//
// tuning:hedge-again. A late create is sent a second time, and its key is read once. Without this
// second read: the first read finds nothing; then the first request is applied, and its connection is
// reset; the second request hangs; the append waits until the second request times out.
func TestHedgeLostWhileTheOtherHangs(t *testing.T) {
	hedged(t, []faultstore.Rule{on("put", 1, faultstore.Fault{Delay: 2 * usual, Err: faultstore.ErrReset}), on("put", 2, never)}, func(w *world) {
		w.createdIn(2 * usual)
		w.requests(2, 2)
	})
}

// The caller gives up because of a conflict elsewhere, as a term does that was deposed.
// Both requests are under way: that is no answer to either.
func TestHedgeGivenUpOverAConflict(t *testing.T) {
	why := fmt.Errorf("deposed: %w", &store.ConflictError{Found: store.Info{Key: "lock/1"}, Body: []byte("lock")})
	hedged(t, []faultstore.Rule{on("put", 1, slow), on("put", 2, slow), on("get", 1, slow)}, func(w *world) {
		ctx, leave := context.WithCancelCause(w.Context())
		time.AfterFunc(tooLate+usual, func() { leave(why) })
		_, err := store.Create(ctx, w.st, "k", []byte("mine"), w.write)
		if store.OutcomeOf(err) != store.Unknown {
			t.Errorf("outcome %v: %v", store.OutcomeOf(err), err)
		}
	})
}

// One of the two is refused because the other is there, whose answer has not come
// yet. That 412 is the own echo.
//
// guard:hedge-applied. Without this rule: the connection of one request is reset; the other request is
// answered with success; the create counts as unknown, so the key must be read once more; if that read
// fails, the outcome is reported as unknown, although the store has told it.
func TestT05_HedgeMeetsItsTwin(t *testing.T) {
	t.Run("second refused", func(t *testing.T) {
		hedged(t, []faultstore.Rule{on("put", 1, lateAck), on("put", 2, faultstore.Fault{Delay: usual}), on("get", 1, slow)}, func(w *world) {
			w.createdIn(tooLate + usual)
			w.requests(2, 2)
		})
	})
	t.Run("first refused", func(t *testing.T) {
		second := lateAck
		second.Delay = usual / 2
		hedged(t, []faultstore.Rule{on("put", 1, faultstore.Fault{Delay: 2 * usual}), on("put", 2, second)}, func(w *world) {
			w.createdIn(2 * usual)
			w.requests(2, 2)
		})
	})
	t.Run("and its answer is lost", func(t *testing.T) {
		for _, f := range []faultstore.Fault{lost, echo} {
			f.ReplyDelay = 3 * usual
			hedged(t, []faultstore.Rule{on("put", 1, f), on("put", 2, faultstore.Fault{Delay: 4 * usual})}, func(w *world) {
				w.created()
				w.requests(2, 1)
			})
		}
	})
	// guard:hedge-applied. The second is lost at once; the first says that it was
	// applied, so no look is needed after it.
	t.Run("and is lost", func(t *testing.T) {
		hedged(t, []faultstore.Rule{on("put", 1, faultstore.Fault{Delay: 2 * usual}), on("put", 2, dropped)}, func(w *world) {
			w.created()
			w.requests(2, 2)
		})
	})
}

// Both are lost. Nothing is there, so the same bytes go out again, and both find
// their equal when they land after all.
func TestT06_BothTwinsLost(t *testing.T) {
	first := late()
	first.ReplyDelay = 2 * usual
	hedged(t, []faultstore.Rule{on("put", 1, first), on("put", 2, late())}, func(w *world) {
		info := w.created()
		w.requests(3, 3)
		if n := w.fault.Release(w.Context(), nil); n != 2 {
			t.Fatalf("%d were late", n)
		}
		if there := w.holds("mine"); there.Version != info.Version {
			t.Error("a late twin replaced the object")
		}
	})
}

// The first request lands a month after the second one was answered.
func TestT09_TwinLandsAMonthLater(t *testing.T) {
	gone := never
	gone.Late = &faultstore.Late{Copies: 2}
	hedged(t, []faultstore.Rule{on("put", 1, gone)}, func(w *world) {
		info := w.created()
		time.Sleep(30 * 24 * time.Hour)
		if n := w.fault.Release(w.Context(), nil); n != 2 {
			t.Fatalf("%d were late", n)
		}
		if there := w.holds("mine"); there.Version != info.Version {
			t.Error("the late twin replaced the object")
		}
	})
}

// Somebody else's object is there. Either of the two finds it.
func TestHedgeRefused(t *testing.T) {
	for name, rules := range map[string][]faultstore.Rule{
		"second": {on("put", 1, never), on("put", 2, faultstore.Fault{Delay: usual})},
		"first":  {on("put", 1, faultstore.Fault{Delay: 2 * usual}), on("put", 2, never)},
		"both":   {on("put", 1, faultstore.Fault{Delay: 2 * usual}), on("put", 2, faultstore.Fault{Delay: usual})},
	} {
		t.Run(name, func(t *testing.T) {
			hedged(t, rules, func(w *world) {
				w.put("other")
				_, err := w.create("mine")
				w.refused(err, "other")
				w.requests(2, 1)
			})
		})
	}
}

// The second request is turned away, while the first may be applied: what is known is what the first
// one says.
//
// guard:hedge-rejected. Without this rule: the first request times out; the second request gets 403;
// the caller is told that nothing was written; the first request is applied after all.
func TestHedgeRejected(t *testing.T) {
	t.Run("first applied", func(t *testing.T) {
		hedged(t, []faultstore.Rule{on("put", 1, faultstore.Fault{Delay: 2 * usual}), on("put", 2, denied)}, func(w *world) {
			w.created()
			w.requests(2, 1)
		})
	})
	t.Run("first lost", func(t *testing.T) {
		first := late()
		first.ReplyDelay = 2 * usual
		hedged(t, []faultstore.Rule{on("put", 1, first), each("put", denied)}, func(w *world) {
			_, err := w.create("mine")
			w.unknown(err, store.ErrDenied)
			w.requests(3, 2)
			w.fault.Release(w.Context(), nil)
			w.holds("mine") // so it was right to say unknown
		})
	})
	t.Run("both", func(t *testing.T) {
		first := denied
		first.ReplyDelay = 2 * usual
		hedged(t, []faultstore.Rule{on("put", 1, first), on("put", 2, denied)}, func(w *world) {
			_, err := w.create("mine")
			if store.OutcomeOf(err) != store.Rejected {
				t.Errorf("outcome %v: %v", store.OutcomeOf(err), err)
			}
			w.requests(2, 1)
			w.holds("-")
		})
	})
}

// The caller gives up while both are under way: both are broken off, and nobody can
// tell what became of them.
func TestHedgeGivenUp(t *testing.T) {
	hedged(t, []faultstore.Rule{each("put", never)}, func(w *world) {
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		_, err := store.Create(ctx, w.st, "k", []byte("mine"), w.write)
		w.unknown(err, context.DeadlineExceeded)
		w.requests(2, 1)
		synctest.Wait()
	})
	// And after both were lost, while the key is read: there were two attempts, not one.
	first := faultstore.Fault{Drop: true, Delay: 2 * usual, Err: faultstore.ErrReset}
	hedged(t, []faultstore.Rule{on("put", 1, first), on("put", 2, dropped), each("get", never)}, func(w *world) {
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		_, err := store.Create(ctx, w.st, "k", []byte("mine"), w.write)
		w.unknown(err, context.DeadlineExceeded)
		if len(w.st.puts) != 2 {
			t.Errorf("%d puts, want 2", len(w.st.puts))
		}
	})
	// And before the second was sent.
	hedged(t, []faultstore.Rule{each("put", never)}, func(w *world) {
		ctx, cancel := context.WithTimeout(w.Context(), usual/2)
		defer cancel()
		_, err := store.Create(ctx, w.st, "k", []byte("mine"), w.write)
		w.unknown(err, context.DeadlineExceeded)
		w.requests(1, 0)
	})
}

// A create that is overtaken is sent again at once, also after one that was late found the
// budget empty; if its own budget is empty, it may still be late.
func TestHedgeOvertaken(t *testing.T) {
	passed := make(chan struct{})
	close(passed)
	hedged(t, []faultstore.Rule{on("put", 1, slow), on("put", 2, faultstore.Fault{Delay: usual})}, func(w *world) {
		soon := make(chan struct{})
		time.AfterFunc(usual/2, func() { close(soon) })
		w.write.Overtaken = soon
		w.createdIn(usual/2 + usual)
		w.requests(2, 1)
	})
	creates := func(w *world, name string, n int) {
		for i := range n {
			if _, err := store.Create(w.Context(), w.st, fmt.Sprint(name, i), []byte("x"), w.write); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Run("late before, without a budget", func(t *testing.T) {
		hedged(t, nil, func(w *world) {
			w.fault.SetHook(faultstore.Script(each("put", faultstore.Fault{Delay: time.Second})))
			creates(w, "slow/", 24)
			soon := make(chan struct{})
			time.AfterFunc(5*usual, func() { close(soon) })
			w.write.Overtaken = soon
			w.fault.SetHook(faultstore.Script(on("put", 1, slow), on("put", 2, faultstore.Fault{Delay: usual})))
			w.createdIn(6 * usual)
		})
	})
	t.Run("late after, when its own budget is spent", func(t *testing.T) {
		hedged(t, nil, func(w *world) {
			w.write.Overtaken = passed
			creates(w, "warm/passed/", 99)
			w.fault.SetHook(faultstore.Script(on("put", 1, slow), on("put", 2, faultstore.Fault{Delay: usual})))
			w.createdIn(tooLate + usual)
		})
	})
}

// A swap is never hedged: a late copy of one could find its version again.
func TestSwapIsNotHedged(t *testing.T) {
	hedged(t, []faultstore.Rule{on("put", 1, faultstore.Fault{Delay: time.Second})}, func(w *world) {
		info, err := w.swap("mine", w.put("old").Version)
		w.applied(info, err, "mine")
		w.requests(1, 0)
	})
}

// When every request is late, one in twenty is sent twice.
//
// tuning:hedge-budget. A create is late if it takes longer than most others, and overtaken if a later
// one of its writer is applied first. Such a create may be sent a second time. Without this limit: the
// store slows down for a minute; every create is late; every writer sends each create twice, and so
// doubles the load on a store that cannot bear the load it has.
func TestHedgeBudget(t *testing.T) {
	hedged(t, nil, func(w *world) {
		w.fault.SetHook(faultstore.Script(each("put", faultstore.Fault{Delay: time.Second})))
		const n = 24 // so few that what is late is not computed anew before their end
		for i := range n {
			if _, err := store.Create(w.Context(), w.st, fmt.Sprint("slow/", i), []byte("x"), w.write); err != nil {
				t.Fatal(err)
			}
		}
		if extra := len(w.st.puts) - n; extra != (warm+n)/20 {
			t.Errorf("%d of %d requests were sent twice", extra, warm+n)
		}
	})
	// When every request is overtaken, one in five.
	hedged(t, nil, func(w *world) {
		passed := make(chan struct{})
		close(passed)
		w.write.Overtaken = passed
		const n = 100
		for i := range n {
			if _, err := store.Create(w.Context(), w.st, fmt.Sprint("warm/passed/", i), []byte("x"), w.write); err != nil {
				t.Fatal(err)
			}
		}
		if extra := len(w.st.puts) - n; extra != (warm+n-1)/5 {
			t.Errorf("%d of %d requests were sent twice because they were overtaken", extra, warm+n)
		}
		// Other requests of the caller earn as much as creates.
		w.st.puts = nil
		for i := range n {
			w.write.Hedge.Others.Add(3)
			if _, err := store.Create(w.Context(), w.st, fmt.Sprint("warm/earned/", i), []byte("x"), w.write); err != nil {
				t.Fatal(err)
			}
		}
		if extra := len(w.st.puts) - n; extra != 4*n/5 {
			t.Errorf("%d of %d requests were sent twice because three others were sent with each", extra, n)
		}
	})
}

// Creates of many sizes are overtaken, and one in six is large. Of all bytes at most one in five is
// sent twice. Where all are as large as each other, one in five is sent twice.
//
// tuning:hedge-bytes. Without this limit: seven of eight creates have 100 bytes; the eighth has 1 MB,
// and takes longer, since the line is slow; so each large one is late or overtaken, and is sent twice;
// only one in eight creates is sent twice then, but the line carries twice the bytes.
func TestHedgeBudgetOfBytes(t *testing.T) {
	const large = 512 << 10
	for _, c := range []struct {
		name        string
		every       int // one in so many is large
		least, most int // of 300 creates so many large ones are sent twice
	}{
		{"one in six is large", 6, 8, 10},
		{"all are large", 1, 56, 60},
	} {
		t.Run(c.name, func(t *testing.T) {
			hedged(t, nil, func(w *world) {
				passed := make(chan struct{})
				close(passed)
				for i := range 300 {
					size := 1
					w.write.Overtaken = nil
					if i%c.every == 0 {
						size, w.write.Overtaken = large, passed
					}
					if _, err := store.Create(w.Context(), w.st, fmt.Sprint("warm/sizes/", i), bytes.Repeat([]byte("x"), size), w.write); err != nil {
						t.Fatal(err)
					}
				}
				if extra := len(w.st.puts) - 300; extra < c.least || extra > c.most {
					t.Errorf("%d large ones were sent twice, want %d to %d", extra, c.least, c.most)
				}
			})
		})
	}
}

// tuning:hedge-bytes. What was saved up pays for eight large creates at most, and bytes that others
// sent do not buy requests.
func TestHedgeBudgetOfSavedBytes(t *testing.T) {
	hedged(t, nil, func(w *world) {
		create := func(name string, n, size int) (twice int) {
			w.st.puts = nil
			for i := range n {
				if _, err := store.Create(w.Context(), w.st, fmt.Sprint("warm/", name, i), bytes.Repeat([]byte("x"), size), w.write); err != nil {
					t.Fatal(err)
				}
			}
			return len(w.st.puts) - n
		}
		create("saved/", 200, 256<<10)
		passed := make(chan struct{})
		close(passed)
		w.write.Overtaken = passed
		w.write.Hedge.Others.Add(1000)
		if n := create("once/", 1, 512<<10); n != 1 {
			t.Error("the first large one was not sent twice, although enough bytes were sent")
		}
		twice := 0
		for i := range 60 { // requests are earned, and few bytes
			w.write.Hedge.Others.Add(10)
			twice += create(fmt.Sprint("others/", i, "/"), 1, 256<<10)
		}
		if twice < 18 || twice > 20 {
			t.Errorf("%d were sent twice, want 8 that were saved up and the 12 that 60 earn", twice)
		}
	})
}

// What is late is measured: where all requests take longer than they used to,
// none is late after a while; nor is one sent twice before enough were seen.
func TestHedgeAdapts(t *testing.T) {
	hedged(t, nil, func(w *world) {
		w.fault.SetHook(faultstore.Script(each("put", faultstore.Fault{Delay: 5 * usual})))
		creates := func(name string, n int) (twice int) {
			w.st.puts = nil
			for i := range n {
				if _, err := store.Create(w.Context(), w.st, fmt.Sprint(name, i), []byte("x"), w.write); err != nil {
					t.Fatal(err)
				}
			}
			return len(w.st.puts) - n
		}
		if creates("first/", 600) == 0 {
			t.Error("at first they are late")
		}
		if n := creates("then/", 600); n != 0 {
			t.Errorf("%d were sent twice though none is late", n)
		}
	})
	inWorld(t, nil, func(w *world) {
		w.write.Hedge = &store.Hedge{Quantile: 0.5}
		w.fault.SetHook(func(op faultstore.Op) faultstore.Fault {
			return faultstore.Fault{Delay: time.Duration(op.N) * usual}
		})
		for i := range 31 {
			if _, err := store.Create(w.Context(), w.st, fmt.Sprint("k/", i), []byte("x"), w.write); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(w.st.puts); n != 31 {
			t.Errorf("31 creates took %d requests", n)
		}
	})
}

func TestHedgeQuantile(t *testing.T) {
	for _, q := range []float64{-1, 0, 0.49, 1, 2, math.NaN()} {
		if _, err := store.Create(t.Context(), nil, "k", []byte("x"), &store.WriteOptions{Hedge: &store.Hedge{Quantile: q}}); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%v: error is %v", q, err)
		}
	}
}

// With the greatest quantiles a request that hangs is still sent again.
func TestHedgeGreatQuantile(t *testing.T) {
	hedged(t, nil, func(w *world) {
		w.write.Hedge = &store.Hedge{Quantile: 0.999}
		for i := range 600 {
			if _, err := store.Create(w.Context(), w.st, fmt.Sprint("warm/", i), []byte("x"), w.write); !errors.Is(err, store.ErrPrecondition) && err != nil {
				t.Fatal(err)
			}
		}
		w.st.puts, w.st.gets = nil, nil
		w.fault.SetHook(faultstore.Script(faultstore.Rule{Prefix: "k", Kind: faultstore.Put, Fault: never}))
		start := time.Now()
		w.created()
		if took := time.Since(start); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}
