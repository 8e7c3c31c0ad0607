//go:build clientgo

package election

import (
	"context"
	"encoding/json"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/kubelock"
	"github.com/fencepost/fencepost/store/faultstore"
)

func init() {
	contenders = append(contenders,
		contender{name: "client-go, ReleaseOnCancel", run: clientGo(true), releases: true, released: clientGoReleased},
		contender{name: "client-go", run: clientGo(false), released: clientGoReleased})
}

// clientGo ends a term by cancelling the context of Run, which is the only way.
func clientGo(release bool) func(context.Context, *faultstore.Store, string, func(context.Context, func())) error {
	return func(ctx context.Context, st *faultstore.Store, who string, work func(context.Context, func())) error {
		ctx, cancel := context.WithCancel(klog.NewContext(ctx, logr.Discard()))
		defer cancel()
		worked := make(chan struct{})
		led := false // client-go tells by an event only
		lock, err := kubelock.New(st, "lease", &kubelock.Options{
			Identity: who, Clock: clock.Go(),
			Hooks: kubelock.Hooks{Event: func(e kubelock.Event) { led = led || e.Text == "became leader" }},
		})
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
