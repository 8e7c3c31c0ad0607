package leader

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/lease"
	"github.com/fencepost/fencepost/store"
)

// State of a lock: held, draining (its holder is about to leave) or expired,
// which is final.
type State string

// The states.
const (
	Held     State = "held"
	Draining State = "draining"
	Expired  State = "expired"
)

// Record is what a lock file says. The file is JSON:
//
//	{
//	  "format": 1,
//	  "epoch": 7,
//	  "state": "held",                  held, draining or expired
//	  "expired": false,                 whether it is over
//	  "holder": "host/4711/…",
//	  "nonce": "…",                     128 random bits, fresh with every write
//	  "validity_ms": 15000,
//	  "renew_ms": 6000,                 the interval of heartbeats
//	  "acquired": "2026-01-02T…",       the holder's time of day, for people
//	  "renewed": "2026-01-02T…",
//	  "renewals": 12,
//	  "transitions": 3,                 how often the holder has changed
//	  "successor": "…",                 who should be next
//	  "reason": "…",                    why it is over
//	  "expired_by": "…",                and who said so
//	  "wait_ms": 15000,                 how long nobody may follow, after a StepDown
//	  "next": 100                       the epoch that follows, if it is not the next
//	                                    one: of a milestone, which nobody ever held
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
	Successor         string
	Reason            string
	ExpiredBy         string
	Wait              time.Duration
	Next              fence.Epoch

	// Key and Version are where it was read; they are not in the file.
	Key     string
	Version store.Version
	// Lapsed tells that it is held, and has not been renewed for its validity:
	// its holder does not lead any more. It is not in the file.
	Lapsed bool
}

// Leads tells whether the record's holder leads, as far as its reader knows.
func (r Record) Leads() bool { return r.Epoch > 0 && r.State != Expired && !r.Lapsed }

const (
	format = 1
	// maxRecord bounds what is read of a lock, whatever its size claims to be.
	maxRecord = 64 << 10
)

type wire struct {
	Format      int       `json:"format"`
	Epoch       uint64    `json:"epoch"`
	State       string    `json:"state"`
	Expired     bool      `json:"expired"`
	Holder      string    `json:"holder"`
	Nonce       string    `json:"nonce"`
	ValidityMS  int64     `json:"validity_ms"`
	RenewMS     int64     `json:"renew_ms"`
	Acquired    time.Time `json:"acquired"`
	Renewed     time.Time `json:"renewed"`
	Renewals    uint64    `json:"renewals"`
	Transitions uint64    `json:"transitions"`
	Successor   string    `json:"successor,omitempty"`
	Reason      string    `json:"reason,omitempty"`
	ExpiredBy   string    `json:"expired_by,omitempty"`
	WaitMS      int64     `json:"wait_ms,omitempty"`
	Next        uint64    `json:"next,omitempty"`
}

func (r Record) encode() ([]byte, error) {
	body, err := json.MarshalIndent(wire{
		Format: format, Epoch: uint64(r.Epoch), State: string(r.State), Expired: r.State == Expired,
		Holder: r.Holder, Nonce: r.Nonce,
		ValidityMS: r.Validity.Milliseconds(), RenewMS: r.Renew.Milliseconds(),
		Acquired: r.Acquired.UTC(), Renewed: r.Renewed.UTC(), Renewals: r.Renewals, Transitions: r.Transitions,
		Successor: r.Successor, Reason: r.Reason, ExpiredBy: r.ExpiredBy, WaitMS: r.Wait.Milliseconds(),
		Next: uint64(r.Next),
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("leader: encoding epoch %d: %w", uint64(r.Epoch), err)
	}
	return append(body, '\n'), nil
}

func junkError(key, why string) error {
	return fmt.Errorf("%w: %s: %s; nobody can lead until it is repaired: look at it, and if it is not wanted, "+
		"call StepDown with Force, which swaps it to expired", ErrJunk, key, why)
}

// decode reads a lock file, whatever somebody has put there.
func decode(key string, epoch uint64, body []byte, info store.Info) (Record, error) {
	junk := func(format string, args ...any) error { return junkError(key, fmt.Sprintf(format, args...)) }
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(body, &head); err != nil {
		return Record{}, junk("%v", err)
	}
	if head.Format > format {
		return Record{}, fmt.Errorf("%w: %s has format %d, this program knows up to %d: upgrade this program", ErrFormat, key, head.Format, format)
	}
	var w wire
	if err := json.Unmarshal(body, &w); err != nil {
		return Record{}, junk("%v", err)
	}
	_, state := lease.ParseState(w.State)
	day := maxValidity.Milliseconds()
	switch {
	case head.Format != format:
		return Record{}, junk("it has no format")
	case w.Epoch != epoch:
		return Record{}, junk("it says epoch %d", w.Epoch)
	case !state:
		return Record{}, junk("its state is %q", w.State)
	case w.Expired != (w.State == string(Expired)):
		return Record{}, junk("it says expired %v and state %q", w.Expired, w.State)
	case len(w.Nonce) != 32:
		return Record{}, junk("its nonce has %d digits, not 32", len(w.Nonce))
	case w.ValidityMS < 1 || w.ValidityMS > day:
		return Record{}, junk("validity_ms is %d, not 1 to %d", w.ValidityMS, day)
	case w.RenewMS < 1 || w.RenewMS > w.ValidityMS:
		return Record{}, junk("renew_ms is %d, not 1 to validity_ms %d", w.RenewMS, w.ValidityMS)
	case w.WaitMS < 0 || w.WaitMS > day:
		return Record{}, junk("wait_ms is %d, not 0 to %d", w.WaitMS, day)
	case w.Next != 0 && (w.Next <= w.Epoch || !w.Expired):
		return Record{}, junk("its state is %q and next is %d: only what is over has a follower, and a later one", w.State, w.Next)
	}
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	return Record{
		Epoch: fence.Epoch(w.Epoch), State: State(w.State), Holder: w.Holder, Nonce: w.Nonce,
		Validity: ms(w.ValidityMS), Renew: ms(w.RenewMS), Acquired: w.Acquired, Renewed: w.Renewed,
		Renewals: w.Renewals, Transitions: w.Transitions, Successor: w.Successor, Reason: w.Reason,
		ExpiredBy: w.ExpiredBy, Wait: ms(w.WaitMS), Next: fence.Epoch(w.Next), Key: key, Version: info.Version,
	}, nil
}

// lock is the record as the machine sees it.
func (r Record) lock() lease.Lock {
	state, _ := lease.ParseState(string(r.State))
	return lease.Lock{
		Epoch: uint64(r.Epoch), Version: r.Version, Nonce: r.Nonce, Holder: r.Holder, State: state,
		Validity: r.Validity, Renew: r.Renew, Successor: r.Successor, Wait: r.Wait, Next: uint64(r.Next),
	}
}

func newNonce() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the program instead
	return hex.EncodeToString(b[:])
}

// lockKey and parseKey name lock files below a prefix that ends in "/".
func lockKey(prefix string, epoch uint64) string {
	return prefix + layout.FormatNumber(epoch) + ".json"
}

func parseKey(prefix, key string) (uint64, bool) {
	rest, ok := strings.CutPrefix(key, prefix)
	if !ok {
		return 0, false
	}
	number, ok := strings.CutSuffix(rest, ".json")
	if !ok {
		return 0, false
	}
	epoch, ok := layout.ParseNumber(number)
	return epoch, ok && epoch > 0
}
