//go:build clientgo

package election

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/kubelock"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
)

func init() {
	contenders = append(contenders,
		contender{name: "client-go, ReleaseOnCancel", run: clientGo(true, plainLock), releases: true, released: clientGoReleased},
		contender{name: "client-go", run: clientGo(false, plainLock), released: clientGoReleased},
		contender{name: "client-go on kubelock, ReleaseOnCancel", run: clientGo(true, kubeLock), releases: true, released: clientGoReleased})
}

// newLock makes a lock for client-go that calls led when client-go says that it leads.
type newLock func(st store.Store, who string, led func()) (resourcelock.Interface, error)

func plainLock(st store.Store, who string, led func()) (resourcelock.Interface, error) {
	return &object{st: st, who: who, led: led}, nil
}

func kubeLock(st store.Store, who string, led func()) (resourcelock.Interface, error) {
	return kubelock.New(st, "lease", &kubelock.Options{Identity: who, Clock: clock.Go(), Hooks: kubelock.Hooks{Event: func(e kubelock.Event) {
		if e.Text == becameLeader {
			led()
		}
	}}})
}

const becameLeader = "became leader"

// clientGo ends a term by cancelling the context of Run, which is the only way.
func clientGo(release bool, lock newLock) func(context.Context, *faultstore.Store, string, func(context.Context, func())) error {
	return func(ctx context.Context, st *faultstore.Store, who string, work func(context.Context, func())) error {
		ctx, cancel := context.WithCancel(klog.NewContext(ctx, logr.Discard()))
		defer cancel()
		worked := make(chan struct{})
		led := false // client-go tells by an event only
		lock, err := lock(st, who, func() { led = true })
		if err != nil {
			return err
		}
		e, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock:          lock,
			LeaseDuration: validity, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
			ReleaseOnCancel: release,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) {
					defer close(worked)
					work(ctx, cancel)
				},
				OnStoppedLeading: func() {}, // client-go also calls it if the candidate has not led
			},
		})
		if err != nil {
			return err
		}
		e.Run(ctx)
		if led {
			<-worked
		}
		return nil
	}
}

func clientGoReleased(body []byte) bool {
	var r resourcelock.LeaderElectionRecord
	return json.Unmarshal(body, &r) == nil && r.LeaseDurationSeconds != 0 && r.HolderIdentity == "" // and no register
}

// object is a lock for client-go that does what its LeaseLock does with an API server, and no more:
// a record in one object, which is read with its version and swapped by version.
type object struct {
	st      store.Store
	who     string
	version store.Version
	led     func()
}

const objectKey = "lease"

func (o *object) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	body, info, err := store.Read(ctx, o.st, objectKey, &store.ReadOptions{Limit: 1 << 20, Settle: &store.SettleOptions{Reads: 1, Clock: clock.Go()}})
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, objectKey)
	}
	if err != nil {
		return nil, nil, err
	}
	var r resourcelock.LeaderElectionRecord
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, nil, err
	}
	o.version = info.Version
	return &r, body, nil
}

func (o *object) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return o.put(ctx, r, store.IfAbsent())
}

func (o *object) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return o.put(ctx, r, store.IfMatch(o.version))
}

// put sends one request, because client-go has its own retries.
func (o *object) put(ctx context.Context, r resourcelock.LeaderElectionRecord, cond store.Condition) error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	info, err := o.st.Put(ctx, objectKey, body, &store.PutOptions{If: cond})
	if errors.Is(err, store.ErrPrecondition) {
		return apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, objectKey, err)
	}
	if err == nil {
		o.version = info.Version
	}
	return err
}

// RecordEvent is the only way to learn that the caller of Run has led.
func (o *object) RecordEvent(event string) {
	if event == becameLeader {
		o.led()
	}
}
func (o *object) Identity() string { return o.who }
func (o *object) Describe() string { return objectKey }
