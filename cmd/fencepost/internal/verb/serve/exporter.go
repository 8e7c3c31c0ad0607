package serve

import (
	"context"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/outside"
)

// Exporter returns the verb.
func Exporter(k *kit.Kit) *cobra.Command {
	c := &cobra.Command{
		Use:   "exporter [--listen ADDR] URL...",
		Short: "serve metrics of logs and groups for Prometheus, from outside",
		Long: `Exporter watches logs and groups from outside, and serves what it sees at /metrics for
Prometheus: who leads, in which epoch, how long the log is, what is not folded, pins,
and the shares of a group. Where fencepost exec runs there is a lock and no log: it
serves who leads, and until when. docs/metrics.md lists the metrics. /healthz and
/readyz are for a supervisor.

A scrape costs no request: the store gets at most --requests-per-minute. The metrics are
for this machine, unless --listen names another address, such as :9464.

It needs the right to read.`,
		Example: "fencepost exporter --listen :9464 s3://bucket/orders",
		Args:    kit.WantArgs(1, 100),
	}
	return watch(k, c, "127.0.0.1:9464", "address for /metrics, /healthz and /readyz", "metrics are at http://%v/metrics", func(_ context.Context, _ string, hub *outside.Hub) http.Handler {
		return exported(hub)
	})
}

// exported serves what hub sees as metrics, and whether it has seen everything.
func exported(hub *outside.Hub) http.Handler {
	reg := kit.Registry()
	reg.MustRegister(outside.Collector(hub))
	return kit.Operations(reg, seen(hub))
}

// seen tells whether each URL was looked at, and some of one can be read now. One that is missing blinds no other, and while the
// store is away nothing is seen.
func seen(hub *outside.Hub) func() (bool, any) {
	return func() (bool, any) {
		type one struct {
			URL   string    `json:"url"`
			Asked time.Time `json:"store_answered,omitzero"`
			Err   string    `json:"error,omitempty"`
		}
		states, _ := hub.States()
		all, looked, reads := []one{}, true, false
		for _, s := range states {
			all = append(all, one{s.URL, s.Asked, s.Err})
			looked = looked && (s.Looked() || s.Err != "")
			reads = reads || s.Looked() && s.Err == "" && s.Now.Sub(s.Asked).Seconds() < s.Silence
		}
		return looked && reads, all
	}
}
