package clock_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store/memstore"
)

// An example of a test in virtual time: somebody closes the lid of the machine that
// leads. The next Check finds out, before any side effect. The store gets the same
// clock as the elector.
func TestExampleSuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		machine := new(clock.Suspendable)
		e, err := leader.New(memstore.New(&memstore.Options{Clock: machine}), "lock", &leader.Options{Clock: machine})
		if err != nil {
			t.Fatal(err)
		}
		term, err := e.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(24 * time.Hour) // takes no time; heartbeats go on
		if err := term.Check(time.Second); err != nil {
			t.Errorf("after a day awake: %v", err)
		}
		machine.Suspend(time.Hour)
		if err := term.Check(time.Second); !errors.Is(err, leader.ErrExpired) {
			t.Errorf("after an hour asleep: %v", err)
		}
	})
}
