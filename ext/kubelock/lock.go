package kubelock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/register"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
)

// Lock is a lock in an object store, for client-go's leaderelection. One elector at a time may
// use it: create a Lock for each. Its methods may be called from several goroutines, and Token
// is meant to be.
type Lock struct {
	st       store.Store
	name     string
	identity string
	timeout  time.Duration
	clock    clock.Clock
	hooks    Hooks
	id       fence.ID

	mu sync.Mutex // never held across a request
	// seen is the record that was last read or written, nil if there was none. version is its
	// version: the next Update replaces exactly that one. It is empty if that cannot succeed.
	seen    *record
	version store.Version
	looked  bool // Get or Create was called
	// term is the epoch of the elector's term, 0 if there is none.
	term fence.Epoch
}

var _ resourcelock.Interface = (*Lock)(nil)

// New returns a lock with a name, such as "orders" or "controllers/orders". It sends no request.
// The error is [ErrOptions].
func New(st store.Store, name string, opts *Options) (*Lock, error) {
	err := errors.Join(checkName(name), opts.Validate())
	if store.IsNil(st) {
		err = errors.Join(err, fmt.Errorf("%w: the store is nil: open one with store.Open", ErrOptions))
	} else {
		err = errors.Join(err, checkPlace(st, name))
	}
	if err != nil {
		return nil, err
	}
	o := *cmp.Or(opts, &Options{})
	l := &Lock{
		st: st, name: name, identity: o.Identity, timeout: cmp.Or(o.RequestTimeout, 3*time.Second), clock: clock.Or(o.Clock), hooks: o.Hooks,
		id: fence.ID(uuid.New()),
	}
	if l.identity == "" {
		l.identity = ownIdentity()
	}
	return l, nil
}

// checkPlace refuses a name among those of logs, backups and groups.
func checkPlace(st store.Store, name string) error {
	for _, key := range []string{leaseKey(name), epochKey(name)} {
		if err := register.Free(st, key); err != nil {
			return fmt.Errorf("%w: the name %s: %w", ErrOptions, name, err)
		}
	}
	return nil
}

func leaseKey(name string) string { return name + ".lease.json" }
func epochKey(name string) string { return name + ".epoch.json" }

// leases is what errors of the API server would be about.
var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

var errTimeout = errors.New("kubelock: no answer in time")

// step gives a context to one step of a call.
func (l *Lock) step(ctx context.Context) (context.Context, context.CancelFunc) {
	return clock.WithTimeout(ctx, l.clock, l.timeout, errTimeout)
}

func (l *Lock) settle() *store.SettleOptions {
	return &store.SettleOptions{Attempt: l.timeout, Reads: 1, Clock: l.clock}
}

// Identity returns the name of this process in the record.
func (l *Lock) Identity() string { return l.identity }

// Describe returns the name of the lock and where it is.
func (l *Lock) Describe() string { return l.name + " in " + l.st.Traits().Where() }

// Get reads the record and returns it, and the bytes of its object. The next Update replaces this
// record. So only the elector may call Get: others call [Read].
//
// The error is one for apierrors.IsNotFound if there is no record; fence.ErrCorrupt or
// fence.ErrFormat if something else is there.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r, body, version, err := read(ctx, l.st, l.name, l.settle())
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen, l.version, l.looked = r, version, true
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", apierrors.NewNotFound(leases, l.name), err)
	}
	ler := r.LeaderElectionRecord
	return &ler, body, nil
}

func read(ctx context.Context, st store.Store, name string, settle *store.SettleOptions) (*record, []byte, store.Version, error) {
	key := leaseKey(name)
	body, info, err := store.Read(ctx, st, key, &store.ReadOptions{Limit: maxRecord, Settle: settle})
	if err != nil {
		return nil, nil, "", err
	}
	r, err := decode(key, body)
	return r, body, info.Version, err
}

// Create writes a record where there is none, and begins a term. The error is one for
// apierrors.IsAlreadyExists if somebody else was faster.
//
// An error that is neither this nor store.Rejected leaves the outcome unknown: the record may be
// there, or appear later. Then the next Get shows it, and the next Update begins a term.
func (l *Lock) Create(ctx context.Context, ler resourcelock.LeaderElectionRecord) error {
	if err := l.mine(&ler); err != nil {
		return err
	}
	// guard:kube-create. A record is created without an epoch, and gets one by a second write.
	//
	//mutant:replace next := &record{LeaderElectionRecord: ler} => drawn, err := l.draw(ctx, 0); if err != nil { return err }; next := &record{LeaderElectionRecord: ler, own: own{Epoch: drawn}}
	//mutant:replace return l.acquire(ctx, next, ler) => l.mu.Lock(); l.term = drawn; l.mu.Unlock(); return nil
	next := &record{LeaderElectionRecord: ler}
	if err := l.put(ctx, next, store.IfAbsent()); err != nil {
		return err
	}
	return l.acquire(ctx, next, ler)
}

// Update replaces the record that was last read or written. It begins a term if that record is
// not this lock's, renews the term if it is, and ends the term if ler has no holder.
//
// The error is one for apierrors.IsConflict if the record has changed since, or is gone;
// [ErrNotHolder] if ler would free another's record; [ErrTermOver] if the elector still is in a
// term that others have ended. Other errors leave the outcome unknown, as for [Lock.Create].
func (l *Lock) Update(ctx context.Context, ler resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	seen, version, looked, term := l.seen, l.version, l.looked, l.term
	l.mu.Unlock()
	switch {
	case !looked:
		return errors.New("kubelock: Update needs the record that it replaces: call Get or Create first")
	case seen == nil || version == "":
		return l.conflict(errors.New("it was changed or deleted; read it again"))
	}
	// guard:kube-incarnation. A record with this process's name is this lock's own only if this very
	// Lock has written it in this term.
	//
	//mutant:replace seen.own.Lock == l.id && seen.own.Epoch == term && term != 0 => term >= 0
	owned := seen.own.Lock == l.id && seen.own.Epoch == term && term != 0 && seen.HolderIdentity == l.identity
	if ler.HolderIdentity == "" {
		return l.release(ctx, seen, ler, owned)
	}
	if err := l.mine(&ler); err != nil {
		return err
	}
	want := seen.LeaderTransitions
	if seen.HolderIdentity != l.identity {
		want++
	}
	// guard:kube-transitions. A record is replaced only if the update's count of transitions follows
	// from it.
	if ler.LeaderTransitions != want {
		return l.conflict(fmt.Errorf("it was read by somebody else than the elector: it has %d transitions, and the update says %d", seen.LeaderTransitions, ler.LeaderTransitions))
	}
	if !owned {
		return l.acquire(ctx, seen, ler)
	}
	return l.put(ctx, seen.with(ler), store.IfMatch(version))
}

// with is the record that follows r.
func (r *record) with(ler resourcelock.LeaderElectionRecord) *record {
	return &record{LeaderElectionRecord: ler, others: r.others, own: own{Epoch: r.own.Epoch}}
}

// mine wants a record that says that this process holds the lock.
func (l *Lock) mine(ler *resourcelock.LeaderElectionRecord) error {
	if ler.HolderIdentity != l.identity {
		return fmt.Errorf("%w: the lock is used by %q, and the record names %q", ErrNotHolder, l.identity, ler.HolderIdentity)
	}
	return nil
}

// acquire replaces the record seen by one that begins a term, or that goes on with the elector's.
func (l *Lock) acquire(ctx context.Context, seen *record, ler resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	version, term := l.version, l.term
	l.mu.Unlock()
	var epoch fence.Epoch
	var err error
	// guard:kube-one-term. While the elector is in a term, the lock is not won again in another epoch.
	//
	//mutant:replace term != 0 => false
	if term != 0 {
		epoch, err = term, l.still(ctx, term)
	} else {
		// guard:kube-draw. A new term draws a new epoch, after it has read the record that it replaces.
		//
		//mutant:replace l.draw(ctx, seen.own.Epoch) => max(seen.own.Epoch, 1), error(nil)
		epoch, err = l.draw(ctx, seen.own.Epoch)
	}
	if err != nil {
		return err
	}
	next := seen.with(ler)
	next.own.Epoch = epoch
	if err := l.put(ctx, next, store.IfMatch(version)); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.term = epoch
	return nil
}

// draw returns an epoch that nobody else gets. It is greater than all that were drawn before the
// call, and greater than floor.
func (l *Lock) draw(ctx context.Context, floor fence.Epoch) (fence.Epoch, error) {
	ctx, cancel := l.step(ctx)
	defer cancel()
	opts := &register.Options{Settle: l.settle(), Clock: l.clock}
	for {
		r, err := register.Take(ctx, l.st, epochKey(l.name), opts)
		if err != nil {
			return 0, fmt.Errorf("drawing an epoch: %w", err)
		}
		// guard:kube-great-epoch. A register whose epoch is greater than counting can reach is refused.
		//
		//mutant:replace r.Epoch() > maxEpoch => false
		if r.Epoch() > maxEpoch {
			return 0, document.Corrupt(epochKey(l.name), "it has epoch %v, which no counting reaches, so something else has written it; delete it: the next epoch then follows the record's", r.Epoch())
		}
		// guard:kube-floor. An epoch is greater than that of the record, also if the register, which
		// counts the epochs, was deleted.
		//
		//mutant:replace r.Epoch() > floor => true
		if r.Epoch() > floor {
			return r.Epoch(), nil
		}
		_, err = register.Open(ctx, l.st, epochKey(l.name), fence.NewToken(floor), opts)
		if err != nil && !errors.Is(err, fence.ErrFenced) {
			return 0, fmt.Errorf("drawing an epoch: %w", err)
		}
	}
}

// still returns nil if nobody has drawn an epoch since the one of the elector's term.
func (l *Lock) still(ctx context.Context, term fence.Epoch) error {
	ctx, cancel := l.step(ctx)
	defer cancel()
	state, err := register.Read(ctx, l.st, epochKey(l.name), &register.Options{Settle: l.settle(), Clock: l.clock})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("reading the newest epoch: %w", err)
	}
	if err != nil || state.Epoch != term {
		return fmt.Errorf("%w: it has epoch %v, and epoch %v was drawn since", ErrTermOver, term, state.Epoch)
	}
	return nil
}

// release frees the record, and ends the term.
func (l *Lock) release(ctx context.Context, seen *record, ler resourcelock.LeaderElectionRecord, owned bool) error {
	l.mu.Lock()
	version, term := l.version, l.term
	l.mu.Unlock()
	if seen.HolderIdentity == "" && seen.own.Lock == l.id && seen.own.Epoch == term && term != 0 {
		return nil // an earlier release was applied, and its answer was lost
	}
	// guard:kube-release. A lock frees only a record of its own term.
	//
	// The error is no conflict: client-go would try again at once, over and over.
	//
	//mutant:replace !owned => false
	if !owned {
		return fmt.Errorf("%w: it frees no record of %q, epoch %v", ErrNotHolder, seen.HolderIdentity, seen.own.Epoch)
	}
	if err := l.put(ctx, seen.with(ler), store.IfMatch(version)); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.term = 0
	return nil
}

// put sends one conditional write, since client-go tries again itself.
func (l *Lock) put(ctx context.Context, next *record, cond store.Condition) error {
	key := leaseKey(l.name)
	next.own.Lock, next.own.Nonce = l.id, fence.ID(uuid.New())
	body, err := next.encode(key)
	if err != nil {
		return err
	}
	if len(body) > maxRecord {
		return fmt.Errorf("%w: the record would have %d bytes; at most %d fit", fence.ErrLimit, len(body), maxRecord)
	}
	ctx, cancel := l.step(ctx)
	defer cancel()
	info, err := l.st.Put(ctx, key, body, &store.PutOptions{If: cond})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looked = true
	switch store.OutcomeOf(err) {
	case store.Applied:
		l.seen, l.version = next, info.Version
		return nil
	case store.Refused:
		l.version = ""
		if cond == store.IfAbsent() {
			return fmt.Errorf("%w: %w", apierrors.NewAlreadyExists(leases, l.name), err)
		}
		return l.conflict(err)
	case store.Rejected:
		return err
	}
	// The record may have changed. If it has not, then the version is still the right one.
	return fmt.Errorf("kubelock: writing %s: %w: %w", key, store.ErrUnknown, err)
}

func (l *Lock) conflict(err error) error {
	return fmt.Errorf("%w: %w", apierrors.NewConflict(leases, l.name, err), err)
}

// stopped is what client-go reports at the end of each term, after it has freed the lock or not.
const stopped = "stopped leading"

// RecordEvent is called by client-go.
func (l *Lock) RecordEvent(text string) {
	l.mu.Lock()
	epoch := l.term
	if text == stopped {
		l.term = 0
	}
	l.mu.Unlock()
	if l.hooks.Event != nil {
		l.hooks.Event(Event{Identity: l.identity, Text: text, Epoch: epoch})
	}
}

// Token returns the token of the term that ctx belongs to: the context that client-go gives to
// OnStartedLeading, or controller-runtime to a Runnable. Call it once, when the work begins. The
// error is [ErrNotHolder] if the term is over.
func (l *Lock) Token(ctx context.Context) (fence.Token, error) {
	l.mu.Lock()
	term := l.term
	l.mu.Unlock()
	// guard:kube-late-token. The token is given only while the caller's context lives, which is checked
	// after the term was read.
	//
	//mutant:replace ctx.Err() != nil => false
	if err := context.Cause(ctx); ctx.Err() != nil {
		return fence.Token{}, fmt.Errorf("%w: the term's context has ended: %w", ErrNotHolder, err)
	}
	if term == 0 {
		return fence.Token{}, fmt.Errorf("%w: %q does not lead", ErrNotHolder, l.identity)
	}
	return fence.NewToken(term), nil
}
