package store_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

func TestCreateAndSwapCostOneRequest(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		info, err := w.create("one")
		w.applied(info, err, "one")
		w.requests(1, 0)
	})
	inWorld(t, nil, func(w *world) {
		info, err := w.swap("two", w.put("one").Version)
		w.applied(info, err, "two")
		w.requests(1, 0)
	})
}

// A plain refusal is believed only after a look.
func TestPlainRefusal(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.put("other")
		_, err := w.create("mine")
		w.refused(err, "other")
		w.requests(1, 1)
	})
	inWorld(t, nil, func(w *world) {
		old := w.put("old").Version
		w.put("other")
		_, err := w.swap("mine", old)
		w.refused(err, "other")
		w.requests(1, 1)
	})
}

// The write was applied and its reply lost, or replaced by the 412 that its own
// echo got. The writer finds its bytes: it has won, and has not been fenced.
func TestT05_OwnWriteFound(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{
		"reset": lost, "500": {Err: faultstore.ErrInternal}, "503": {Err: faultstore.ErrUnavailable}, "429": {Err: faultstore.ErrThrottled},
		"timeout": {Err: faultstore.ErrTimeout}, "echo": echo, "hang": {Hang: true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, []faultstore.Rule{on("put", 1, fault)}, func(w *world) {
				w.created()
				w.requests(1, 1)
			})
			inWorld(t, []faultstore.Rule{on("put", 1, fault)}, func(w *world) {
				w.swapped()
				w.requests(1, 1)
			})
		})
	}
}

// A lost write is sent again, and the 412 that the second one gets is the echo
// of the first, which landed meanwhile.
func TestT05_EchoOfAnEarlierAttempt(t *testing.T) {
	inWorld(t, []faultstore.Rule{on("put", 1, late())}, func(w *world) {
		w.before("put", 2, func() { w.fault.Release(w.Context(), nil) })
		w.created()
		w.requests(2, 2)
	})
	inWorld(t, []faultstore.Rule{on("put", 1, late())}, func(w *world) {
		old := w.put("old").Version
		w.before("put", 2, func() { w.fault.Release(w.Context(), nil) })
		info, err := w.swap("mine", old)
		w.applied(info, err, "mine")
		w.requests(2, 2)
	})
}

// Nothing is there after a lost write, and after a 412: that is not "there was
// no write". The same bytes go to the same key until it is settled.
func TestT06_SameBytesSameKeyUntilSettled(t *testing.T) {
	rules := []faultstore.Rule{on("put", 1, late()), on("put", 2, overloaded), on("put", 3, liar), on("put", 4, dropped)}
	inWorld(t, rules, func(w *world) {
		info := w.created()
		w.requests(5, 4)
		// The first one lands at last, and finds its equal there.
		if n := w.fault.Release(w.Context(), nil); n != 1 {
			t.Fatalf("%d requests were late", n)
		}
		if there := w.holds("mine"); there.Version != info.Version {
			t.Error("the late request replaced the object")
		}
	})
}

// After a lost write somebody else's bytes are there: then it is refused.
func TestT06_AnothersBytesAfterUnknown(t *testing.T) {
	inWorld(t, []faultstore.Rule{on("put", 1, dropped)}, func(w *world) {
		w.before("get", 1, func() { w.put("other") })
		_, err := w.create("mine")
		w.refused(err, "other")
		w.requests(1, 1)
	})
	inWorld(t, []faultstore.Rule{on("put", 1, dropped)}, func(w *world) {
		old := w.put("old").Version
		w.before("get", 1, func() { w.put("other") })
		_, err := w.swap("mine", old)
		w.refused(err, "other")
		w.requests(1, 1)
	})
}

// A lost swap that has not been applied is sent again, on the same condition.
func TestSwapIsSentAgain(t *testing.T) {
	inWorld(t, []faultstore.Rule{on("put", 1, dropped), on("put", 2, overloaded)}, func(w *world) {
		w.swapped()
		w.requests(3, 2)
	})
}

// 409 says that the store was busy with another conditional write, which may
// have been our own.
func TestT07_ConflictIsUnknown(t *testing.T) {
	inWorld(t, []faultstore.Rule{on("put", 1, faultstore.Fault{Drop: true, Err: faultstore.ErrConflict})}, func(w *world) {
		w.created()
		w.requests(2, 1)
	})
	inWorld(t, []faultstore.Rule{on("put", 1, faultstore.Fault{Err: faultstore.ErrConflict})}, func(w *world) {
		w.swapped()
		w.requests(1, 1)
	})
}

// A swap of a key that is gone is refused, however the driver words it.
func TestT08_SwapOfMissingKeyIsRefused(t *testing.T) {
	missing := &store.Error{Kind: store.ErrNotFound, Status: 404}
	for name, rules := range map[string][]faultstore.Rule{
		"412": nil, "404": {on("put", 1, faultstore.Fault{Drop: true, Err: missing})}, "lost": {on("put", 1, dropped)},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, rules, func(w *world) {
				old := w.put("old").Version
				w.remove()
				_, err := w.swap("mine", old)
				c := w.refused(err, "-")
				if !strings.Contains(c.Error(), "gone") {
					t.Errorf("the error does not say that it is gone: %v", c)
				}
				w.requests(1, 1)
			})
		})
	}
}

// A writer gives up while its create is on the way. Whoever settles the key with
// the same bytes occupies it, so that the late request, landing twice at any
// time after, changes nothing.
func TestT09_LateRequestFindsItsEqual(t *testing.T) {
	fault := faultstore.Fault{Drop: true, Hang: true, Late: &faultstore.Late{Copies: 2}}
	inWorld(t, []faultstore.Rule{on("put", 1, fault)}, func(w *world) {
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		_, err := store.Create(ctx, w.st, "k", []byte("mine"), w.write)
		w.unknown(err, context.DeadlineExceeded)
		w.holds("-")

		info := w.created()
		if n := w.fault.Release(w.Context(), nil); n != 2 {
			t.Fatalf("%d landed", n)
		}
		if there := w.holds("mine"); there.Version != info.Version {
			t.Error("the late request replaced the object")
		}
		w.samePuts()
	})
}

// The same, for a swap: the late one finds its version gone.
func TestT09_LateSwapFindsItsVersionGone(t *testing.T) {
	inWorld(t, []faultstore.Rule{on("put", 1, late())}, func(w *world) {
		info := w.swapped()
		next, err := w.swap("next", info.Version)
		w.applied(next, err, "next")
		if n := w.fault.Release(w.Context(), nil); n != 1 {
			t.Fatalf("%d landed", n)
		}
		w.holds("next")
	})
}

// Where versions are made of contents, only the nonce in every body keeps a
// version from coming back.
func TestT13_ContentVersions(t *testing.T) {
	ctx := t.Context()
	round := func(again string) error {
		st := memstore.New(&memstore.Options{ContentVersions: true})
		first, err := store.Create(ctx, st, "k", []byte("free, nonce 1"), nil)
		if err != nil {
			t.Fatal(err)
		}
		held, err := store.Swap(ctx, st, "k", []byte("held, nonce 2"), first.Version, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Swap(ctx, st, "k", []byte(again), held.Version, nil); err != nil {
			t.Fatal(err)
		}
		// Somebody who saw the first state and slept through the others.
		_, err = store.Swap(ctx, st, "k", []byte("taken, nonce 4"), first.Version, nil)
		return err
	}
	if err := round("free, nonce 3"); store.OutcomeOf(err) != store.Refused {
		t.Errorf("a stale swap: %v", err)
	}
	if err := round("free, nonce 1"); err != nil {
		t.Errorf("without a new nonce the stale swap should have gone through here, and show why it is needed: %v", err)
	}
}

// A loser whose body has the winner's content, but for its nonce, has lost.
func TestT13_LoserIsToldApartByItsNonce(t *testing.T) {
	st := memstore.New(&memstore.Options{ContentVersions: true})
	if _, err := store.Create(t.Context(), st, "k", []byte("leader 7, nonce 1"), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Create(t.Context(), st, "k", []byte("leader 7, nonce 2"), nil); store.OutcomeOf(err) != store.Refused {
		t.Errorf("%v", err)
	}
}

func TestContextEndsWhileUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		rules []faultstore.Rule
		at    faultstore.Kind // the request at which the context ends
		n     int
		puts  int
	}{
		"before the first attempt":         {nil, "", 0, 1},
		"in the first attempt":             {[]faultstore.Rule{on("put", 1, faultstore.Fault{Hang: true})}, "put", 1, 1},
		"in the pause after it":            {[]faultstore.Rule{on("put", 1, dropped)}, "put", 1, 1},
		"in the look":                      {[]faultstore.Rule{on("put", 1, lost), each("get", faultstore.Fault{Hang: true})}, "get", 1, 1},
		"in the look after a plain 412":    {[]faultstore.Rule{on("put", 1, echo), each("get", overloaded)}, "get", 3, 1},
		"in the pause after nothing found": {[]faultstore.Rule{on("put", 1, dropped)}, "get", 1, 1},
		"in a later attempt":               {[]faultstore.Rule{each("put", dropped)}, "put", 4, 4},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, c.rules, func(w *world) {
				enough := errors.New("enough")
				ctx, cancel := context.WithCancelCause(w.Context())
				if c.at == "" {
					cancel(enough)
				}
				w.before(c.at, c.n, func() { time.AfterFunc(time.Nanosecond, func() { cancel(enough) }) })
				_, err := store.Create(ctx, w.st, "k", []byte("mine"), w.write)
				w.unknown(err, enough)
				if len(w.st.puts) != c.puts || strings.Contains(err.Error(), "nil") {
					t.Errorf("%d puts, want %d: %v", len(w.st.puts), c.puts, err)
				}
			})
		})
	}
	t.Run("swap", func(t *testing.T) {
		// A store that answers 412 once, and whose reader gives up in the pause.
		inWorld(t, []faultstore.Rule{each("put", liar)}, func(w *world) {
			enough := errors.New("enough")
			ctx, cancel := context.WithCancelCause(w.Context())
			w.before("get", 1, func() { time.AfterFunc(time.Nanosecond, func() { cancel(enough) }) })
			_, err := store.Swap(ctx, w.st, "k", []byte("mine"), w.put("old").Version, w.write)
			w.unknown(err, enough)
		})
	})
}

// A store that for ever refuses what it shows ends in an error, not in a loop.
func TestT14_ContradictionIsGivenUp(t *testing.T) {
	inWorld(t, []faultstore.Rule{each("put", liar)}, func(w *world) {
		_, err := w.swap("mine", w.put("old").Version)
		w.unknown(err, nil)
		if !strings.Contains(err.Error(), "refuses the very version") || len(w.st.puts) > 20 {
			t.Errorf("after %d puts: %v", len(w.st.puts), err)
		}
	})
	inWorld(t, []faultstore.Rule{each("put", liar)}, func(w *world) {
		_, err := w.create("mine")
		w.unknown(err, nil)
		if !strings.Contains(err.Error(), "does not exist") || len(w.st.puts) > 20 {
			t.Errorf("after %d puts: %v", len(w.st.puts), err)
		}
	})
}

func TestRejectedFirst(t *testing.T) {
	for _, kind := range []error{store.ErrDenied, store.ErrNoBucket, store.ErrUnsupported, store.ErrInvalid} {
		fault := faultstore.Fault{Drop: true, Err: &store.Error{Kind: kind}}
		inWorld(t, []faultstore.Rule{each("put", fault)}, func(w *world) {
			_, err := w.create("mine")
			if !errors.Is(err, kind) || store.OutcomeOf(err) != store.Rejected {
				t.Errorf("%v, outcome %v", err, store.OutcomeOf(err))
			}
			w.requests(1, 0)
		})
	}
}

// Denied after an attempt of unknown outcome says nothing of that attempt.
func TestRejectedAfterUnknown(t *testing.T) {
	inWorld(t, []faultstore.Rule{on("put", 1, late()), on("put", 2, denied)}, func(w *world) {
		_, err := w.create("mine")
		w.unknown(err, store.ErrDenied)
		w.requests(2, 1)
		w.fault.Release(w.Context(), nil)
		w.holds("mine") // and so it was
	})
	// A lost swap that is not there yet is one, too.
	inWorld(t, []faultstore.Rule{on("put", 1, late()), on("put", 2, denied)}, func(w *world) {
		_, err := w.swap("mine", w.put("old").Version)
		w.unknown(err, store.ErrDenied)
		w.fault.Release(w.Context(), nil)
		w.holds("mine")
	})
}

// Without a look even a plain 412 may be one's own echo.
func TestLookDenied(t *testing.T) {
	for name, put := range map[string]faultstore.Fault{"412": echo, "lost": lost} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, []faultstore.Rule{on("put", 1, put), each("get", denied)}, func(w *world) {
				_, err := w.create("mine")
				w.unknown(err, store.ErrDenied)
				w.holds("mine")
			})
		})
	}
}

// Looks go on until the store answers: giving up would leave it unknown.
func TestLookGoesOn(t *testing.T) {
	inWorld(t, []faultstore.Rule{on("put", 1, lost), {Kind: "get", Times: 40, Fault: overloaded}}, func(w *world) {
		w.created()
		w.requests(1, 41)
	})
}

// A body that breaks off, or ends early without an error, is not another's.
func TestLookCutShort(t *testing.T) {
	rules := []faultstore.Rule{
		on("put", 1, lost),
		on("get", 1, faultstore.Fault{Cut: true, Keep: 2}),
		on("get", 2, faultstore.Fault{Cut: true, Keep: 2, Err: faultstore.ErrReset}),
	}
	inWorld(t, rules, func(w *world) {
		w.created()
		w.requests(1, 3)
	})
}

func TestIdentity(t *testing.T) {
	big := "nonce 1;" + strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct {
		there string
		want  store.Outcome
	}{
		"own":                  {big, store.Applied},
		"another nonce":        {"nonce 2;" + big[8:], store.Refused},
		"another size":         {big + "x", store.Refused},
		"shorter than a nonce": {"non", store.Refused},
		"empty":                {"", store.Refused},
		// Past its identity a body is not compared: that is the bargain.
		"own by its nonce": {"nonce 1;" + strings.Repeat("y", 1<<20), store.Applied},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, []faultstore.Rule{on("put", 1, dropped)}, func(w *world) {
				w.write.Identity = 8
				w.put(c.there)
				info, err := w.create(big)
				if c.want == store.Applied {
					w.applied(info, err, c.there)
				} else {
					conflict := w.refused(err, c.there)
					if string(conflict.Body) != c.there[:min(8, len(c.there))] {
						t.Errorf("the refusal shows %q", conflict.Body)
					}
				}
				if got := w.st.gets[0]; got.Offset != 0 || got.Length != 8 {
					t.Errorf("the look asked for %+v", got)
				}
			})
		})
	}
	inWorld(t, []faultstore.Rule{on("put", 1, lost)}, func(w *world) {
		w.write.Identity = 1000 // longer than the body
		w.created()
	})
}

// An object of the same length and the same beginning is not one's own.
func TestWholeBodyIsTheIdentityByDefault(t *testing.T) {
	inWorld(t, []faultstore.Rule{on("put", 1, dropped)}, func(w *world) {
		w.put("record, nonce 1")
		_, err := w.create("record, nonce 2")
		w.refused(err, "record, nonce 1")
	})
}

func TestEmptyObjectFound(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.put("")
		_, err := w.create("mine")
		w.refused(err, "")
	})
	// It may be the very object that is to be swapped.
	inWorld(t, []faultstore.Rule{on("put", 1, dropped), on("get", 2, overloaded)}, func(w *world) {
		info, err := w.swap("mine", w.put("").Version)
		w.applied(info, err, "mine")
	})
}

func TestInvalidWritesSendNothing(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		for _, err := range []error{
			second(w.create("")), second(w.swap("", "v")), second(w.swap("mine", "")),
		} {
			if !errors.Is(err, store.ErrInvalid) || store.OutcomeOf(err) != store.Rejected {
				t.Errorf("%v", err)
			}
		}
		w.requests(0, 0)
	})
}

func second(_ store.Info, err error) error { return err }

// An attempt that hears nothing ends after SettleOptions.Attempt.
func TestAttemptTimesOut(t *testing.T) {
	inWorld(t, []faultstore.Rule{on("put", 1, faultstore.Fault{Drop: true, Hang: true}), on("get", 1, faultstore.Fault{Hang: true})}, func(w *world) {
		w.opts.Attempt = 7 * time.Second
		start := time.Now()
		w.created()
		if took := time.Since(start); took < 14*time.Second || took > 15*time.Second {
			t.Errorf("two attempts that hung took %v", took)
		}
		w.requests(2, 2)
	})
	inWorld(t, []faultstore.Rule{each("get", faultstore.Fault{Hang: true})}, func(w *world) {
		w.opts.Reads = 1
		start := time.Now()
		_, _, err := store.Read(w.Context(), w.st, "k", &store.ReadOptions{Limit: 10, Settle: w.opts})
		if err == nil || !strings.Contains(err.Error(), "no answer within 30s") || time.Since(start) != 30*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}

func TestPauses(t *testing.T) {
	gaps := func(w *world, n int) (gaps []time.Duration) {
		for i := 1; i < n; i++ {
			gaps = append(gaps, w.st.puts[i].at.Sub(w.st.puts[i-1].at))
		}
		return gaps
	}
	// A swap that fails and is found not to be applied pauses once a round.
	inWorld(t, []faultstore.Rule{{Kind: "put", Times: 10, Fault: dropped}}, func(w *world) {
		w.opts.Backoff, w.opts.MaxBackoff = 100*time.Millisecond, time.Second
		if _, err := w.swap("mine", w.put("old").Version); err != nil {
			t.Fatal(err)
		}
		most := 100 * time.Millisecond
		for i, gap := range gaps(w, 11) {
			if gap < most/2 || gap > most {
				t.Errorf("pause %d is %v, want %v to %v", i+1, gap, most/2, most)
			}
			most = min(2*most, time.Second)
		}
	})
	// A store that says how long to wait is obeyed, up to a minute.
	for asked, want := range map[time.Duration]time.Duration{7 * time.Second: 7 * time.Second, time.Hour: time.Minute} {
		slow := &store.Error{Status: 503, RetryAfter: asked}
		inWorld(t, []faultstore.Rule{on("put", 1, faultstore.Fault{Drop: true, Err: slow})}, func(w *world) {
			if _, err := w.swap("mine", w.put("old").Version); err != nil {
				t.Fatal(err)
			}
			if got := gaps(w, 2)[0]; got != want {
				t.Errorf("asked to wait for %v, waited %v", asked, got)
			}
		})
	}
}

func TestConflictErrorReads(t *testing.T) {
	c := &store.ConflictError{Found: store.Info{Key: "k", Version: "v"}}
	if got := c.Error(); !strings.Contains(got, "412") || !strings.Contains(got, `"k"`) || store.OutcomeOf(c) != store.Refused {
		t.Error(got)
	}
}
