package cloud

import (
	"net"
	"net/http"
	"time"
)

// Transport returns an HTTP transport that keeps enough connections open for a writer's
// pipeline.
func Transport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // it is one unless somebody has replaced it
	t.DialContext = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	t.DisableCompression = true // objects come as they are stored
	t.MaxIdleConns = 0          // no limit but the next line's
	t.MaxIdleConnsPerHost = 256
	t.WriteBufferSize = 64 << 10
	t.ReadBufferSize = 32 << 10
	// Committing an upload of many parts may take a while. A caller that wants an answer
	// sooner has a context.
	t.ResponseHeaderTimeout = 2 * time.Minute
	return t
}
