package leader_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

func TestOptionsShowTheArithmetic(t *testing.T) {
	for _, c := range []struct {
		name  string
		o     leader.Options
		wants []string
	}{
		{"renew above", leader.Options{Renew: 12 * time.Second}, []string{"Renew 12s + RequestTimeout 3s = 15s exceeds nine tenths of Validity 15s = 13.5s"}},
		{"timeout above", leader.Options{RequestTimeout: 10 * time.Second}, []string{"Renew 6s + RequestTimeout 10s = 16s exceeds"}},
		{"two at once", leader.Options{Validity: time.Microsecond, StallAfter: -1}, []string{"Validity 1µs", "StallAfter -1ns"}},
		{"too long", leader.Options{Validity: 48 * time.Hour}, []string{"Validity 48h0m0s must be 10ms to 24h0m0s"}},
		{"fractions", leader.Options{Renew: 1500 * time.Microsecond}, []string{"whole milliseconds"}},
		{"old locks", leader.Options{Prune: leader.PruneOptions{Keep: -5}}, []string{"Keep -5"}},
		{"their age too", leader.Options{Prune: leader.PruneOptions{Keep: -5, For: -5 * time.Hour}}, []string{"Keep -5", "For -5h0m0s"}},
		{"reads without a pause", leader.Options{Poll: 1}, []string{"Poll 1ns must be at least 1ms"}},
		{"stalls at once", leader.Options{StallAfter: time.Millisecond}, []string{"StallAfter 1ms must be at least 10ms"}},
		{"announce", leader.Options{Announce: strings.Repeat("x", 513)}, []string{"Announce", "at most 512 bytes"}},
		{"identity", leader.Options{Identity: "a\nb"}, []string{"Identity"}},
	} {
		err := c.o.Validate()
		if _, made := leader.New(memstore.New(nil), "lock", &c.o); !errors.Is(err, leader.ErrOptions) || !errors.Is(made, leader.ErrOptions) {
			t.Errorf("%s: Validate: %v; New: %v", c.name, err, made)
			continue
		}
		for _, want := range c.wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", c.name, err, want)
			}
		}
	}
	if err := (&leader.Options{Validity: 1}).Validate(); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("a short Validity is one fault: %v", err)
	}
	if _, err := leader.New(slowStore{memstore.New(nil)}, "lock", &leader.Options{Renew: 500 * time.Millisecond}); err == nil ||
		!strings.Contains(err.Error(), "Renew 500ms is below 1s, the least time between two writes of one key that slow:// allows") {
		t.Errorf("MinRewrite: %v", err)
	}
	if _, err := leader.New(memstore.New(nil), "/", nil); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("prefix: %v", err)
	}
}

// Nil options are valid, and a reason has a limit.
func TestOptionsOfCalls(t *testing.T) {
	if err := errors.Join((*leader.Options)(nil).Validate(), (*leader.StepDownOptions)(nil).Validate()); err != nil {
		t.Error(err)
	}
	if err := (&leader.StepDownOptions{Reason: strings.Repeat("x", 1025)}).Validate(); !errors.Is(err, leader.ErrOptions) {
		t.Errorf("a long reason: %v", err)
	}
}

func TestOptionsDefaultsFitAnyValidity(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []time.Duration{0, 10 * time.Millisecond, 11 * time.Millisecond, 150 * time.Millisecond, time.Second, 15 * time.Second, time.Hour, 24 * time.Hour} {
		if _, err := leader.New(memstore.New(nil), "a/b", &leader.Options{Validity: v}); err != nil {
			t.Errorf("%v: %v", v, err)
		}
	}
	if id := leader.DefaultIdentity(); !strings.HasPrefix(id, host+"/") || strings.Count(id, "/") < 2 || id == leader.DefaultIdentity() {
		t.Errorf("identity %q", id)
	}
	// A store that allows one write a second lengthens the heartbeat.
	if _, err := leader.New(slowStore{memstore.New(nil)}, "lock", &leader.Options{Validity: 2 * time.Second}); err != nil {
		t.Error(err)
	}
}
