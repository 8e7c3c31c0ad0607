package leader

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/lease"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
)

// State of a lock.
type State string

// A lock is held, then perhaps draining (its holder is about to leave), then
// expired, which is final.
const (
	Held     State = "held"
	Draining State = "draining"
	Expired  State = "expired"
)

// Record is the content of a lock file. The file is JSON:
//
//	{
//	 "format": 1,
//	 "epoch": 7,
//	 "state": "held",                  held, draining or expired
//	 "expired": false,                 whether the state is expired
//	 "holder": "host/4711/…",
//	 "nonce": "…",                     128 random bits, new with each write
//	 "validity_ms": 15000,
//	 "renew_ms": 6000,                 the interval of heartbeats
//	 "acquired": "2026-01-02T…",       the holder's time of day, for people
//	 "renewed": "2026-01-02T…",
//	 "renewals": 12,
//	 "transitions": 3,                 how often the holder has changed
//	 "reason": "…",                    why the lock expired
//	 "expired_by": "…",                the identity that expired it
//	 "wait_ms": 15000,                 how long nobody may follow, after a StepDown
//	 "announce": "…",                  what the holder says of itself
//	 "next": 100,                      of a milestone, a lock that was never held and
//	                                   skips epochs: the epoch that follows
//	 "checksum": "9d3c01ab"            of all that comes before it
//	}
type Record struct {
	Epoch             fence.Epoch
	State             State
	Holder            string
	Nonce             string
	Validity, Renew   time.Duration
	Acquired, Renewed time.Time
	Renewals          uint64
	Transitions       uint64
	Reason            string
	ExpiredBy         string
	Wait              time.Duration
	Next              fence.Epoch
	// Announce is what the holder says of itself: [Options].Announce. Whoever may write the lock may
	// write this, so it is worth as much as the lock. Heed it only while the holder [Record.Leads].
	Announce string

	// Key and Version are those of the object that was read. They are not in the file.
	Key     string
	Version store.Version
	// Lapsed says that the lock is not expired, but was not renewed for its validity:
	// its holder does not lead any more. It is not in the file.
	Lapsed bool
}

// Leads reports whether the holder leads, as far as the reader knows.
func (r Record) Leads() bool { return r.Epoch > 0 && r.State != Expired && !r.Lapsed }

// maxRecord bounds the size of a lock that is read, in bytes.
const maxRecord = 64 << 10

type wire struct {
	Format      int         `json:"format"`
	Epoch       fence.Epoch `json:"epoch"`
	State       string      `json:"state"`
	Expired     bool        `json:"expired"`
	Holder      string      `json:"holder"`
	Nonce       string      `json:"nonce"`
	ValidityMS  int64       `json:"validity_ms"`
	RenewMS     int64       `json:"renew_ms"`
	Acquired    time.Time   `json:"acquired"`
	Renewed     time.Time   `json:"renewed"`
	Renewals    uint64      `json:"renewals"`
	Transitions uint64      `json:"transitions"`
	Reason      string      `json:"reason,omitempty"`
	ExpiredBy   string      `json:"expired_by,omitempty"`
	WaitMS      int64       `json:"wait_ms,omitempty"`
	Next        fence.Epoch `json:"next,omitempty"`
	Announce    string      `json:"announce,omitempty"`
}

func (r Record) encode() ([]byte, error) {
	body, err := document.Encode(layout.LockKey("", r.Epoch), wire{
		Format: document.Format, Epoch: r.Epoch, State: string(r.State), Expired: r.State == Expired,
		Holder: r.Holder, Nonce: r.Nonce,
		ValidityMS: r.Validity.Milliseconds(), RenewMS: r.Renew.Milliseconds(),
		Acquired: r.Acquired.UTC(), Renewed: r.Renewed.UTC(), Renewals: r.Renewals, Transitions: r.Transitions,
		Reason: r.Reason, ExpiredBy: r.ExpiredBy, WaitMS: r.Wait.Milliseconds(),
		Next: r.Next, Announce: r.Announce,
	})
	if err != nil {
		return nil, fmt.Errorf("leader: %w", err)
	}
	return body, nil
}

func corrupt(key, why string, args ...any) error {
	return fmt.Errorf("%w: %s: %s; nobody can lead until it is repaired: read it, and if nobody needs it, "+
		"call StepDown with Force, which swaps it to expired", ErrCorrupt, key, fmt.Sprintf(why, args...))
}

// decode reads a lock file. It accepts only what an elector may have written.
func decode(key string, epoch fence.Epoch, body []byte, info store.Info) (Record, error) {
	var w wire
	switch err := document.Decode(key, body, &w); {
	case errors.Is(err, fence.ErrFormat):
		return Record{}, fmt.Errorf("%w: %w", ErrFormat, err)
	case err != nil:
		return Record{}, corrupt(key, "%s", strings.TrimPrefix(err.Error(), fmt.Sprintf("%v: %s: ", fence.ErrCorrupt, key)))
	}
	day := maxValidity.Milliseconds()
	switch {
	case w.Epoch != epoch:
		return Record{}, corrupt(key, "it says epoch %d", w.Epoch)
	case !lease.State(w.State).Valid():
		return Record{}, corrupt(key, "its state is %q", w.State)
	case w.Expired != (w.State == string(Expired)):
		return Record{}, corrupt(key, "it says expired %v and state %q", w.Expired, w.State)
	case len(w.Nonce) != 32 || strings.Trim(w.Nonce, "0123456789abcdef") != "":
		return Record{}, corrupt(key, "its nonce %.40q is not of 32 hexadecimal digits", w.Nonce)
	case w.ValidityMS < 1 || w.ValidityMS > day:
		return Record{}, corrupt(key, "validity_ms is %d, not 1 to %d", w.ValidityMS, day)
	case w.RenewMS < 1 || w.RenewMS > w.ValidityMS:
		return Record{}, corrupt(key, "renew_ms is %d, not 1 to validity_ms %d", w.RenewMS, w.ValidityMS)
	case w.WaitMS < 0 || w.WaitMS > day:
		return Record{}, corrupt(key, "wait_ms is %d, not 0 to %d", w.WaitMS, day)
	case w.Next > layout.MaxMinEpoch:
		return Record{}, corrupt(key, "it names %d as the next epoch; an elector writes at most %d, which leaves room for others", w.Next, layout.MaxMinEpoch)
	case w.Next != 0 && (w.Next <= w.Epoch || !w.Expired):
		return Record{}, corrupt(key, "its state is %q and next is %d; next needs the state expired and a later epoch", w.State, w.Next)
	}
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	return Record{
		Epoch: w.Epoch, State: State(w.State), Holder: w.Holder, Nonce: w.Nonce,
		Validity: ms(w.ValidityMS), Renew: ms(w.RenewMS), Acquired: w.Acquired, Renewed: w.Renewed,
		Renewals: w.Renewals, Transitions: w.Transitions, Reason: w.Reason,
		ExpiredBy: w.ExpiredBy, Wait: ms(w.WaitMS), Next: w.Next, Announce: w.Announce, Key: key, Version: info.Version,
	}, nil
}

// lock is the part of the record that the state machine needs.
func (r Record) lock() lease.Lock {
	return lease.Lock{
		Epoch: r.Epoch, Version: r.Version, Nonce: r.Nonce, Holder: r.Holder, State: lease.State(r.State),
		Validity: r.Validity, Renew: r.Renew, Wait: r.Wait, Next: r.Next,
	}
}

func newNonce() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the program instead
	return hex.EncodeToString(b[:])
}
