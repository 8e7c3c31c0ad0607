// Package serve has the verbs serve and exporter.
package serve

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/outside"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/page"
)

// Serve returns the verb.
func Serve(k *kit.Kit) *cobra.Command {
	c := &cobra.Command{
		Use:   "serve [--listen ADDR] URL...",
		Short: "show logs and groups on a live page in the browser",
		Long: `Serve shows logs and groups on a page that follows them. Of a log it shows who led when,
with gaps and seals, the tail, the floor, and what is not folded. It shows manifests and
who wrote them, pins, and how far the Delta table beside the log is. Of a group it shows
the members, their shares, and partitions that move. Of a place where fencepost exec
runs, it shows who leads and who led.

The page only reads, and needs nothing from elsewhere. However many browsers show it,
the store gets at most --requests-per-minute. With 12, a new leader is seen within half
a minute. The page is for this machine, unless --listen names another address. It has
no password: put a proxy before it. It also serves /metrics, as exporter does, and
/healthz and /readyz.

It needs the right to read.`,
		Example: "fencepost serve s3://bucket/orders s3://bucket/workers",
		Args:    kit.WantArgs(1, 100),
	}
	return watch(k, c, "127.0.0.1:9465", "address of the page", "the page is at http://%v/", func(ctx context.Context, addr string, hub *outside.Hub) http.Handler {
		return page.Handler(ctx, hub, page.Loopback(addr), exported(hub))
	})
}
