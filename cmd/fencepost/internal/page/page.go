package page

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/outside"
)

//go:embed assets
var assets embed.FS

// maxStreams is how many tabs may be open at once. More get an error. They cost no request to
// the store.
const maxStreams = 100

// policy lets the page load only what this server has, and nobody put it into a frame.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

type server struct {
	hub     *outside.Hub
	files   http.Handler
	streams atomic.Int32
	local   bool            // only names of this machine are served
	ctx     context.Context //nolint:containedctx // it ends the streams when the server ends
}

// Handler returns the page of what hub knows, and beside it /metrics, /healthz and /readyz of probes.
// Streams end with ctx. On connections from this machine, and on all with local, it answers only requests
// to localhost or to an address. Another name is refused: a foreign page may have made it up.
func Handler(ctx context.Context, hub *outside.Hub, local bool, probes http.Handler) http.Handler {
	root, err := fs.Sub(assets, "assets")
	if err != nil {
		panic(err) // the folder is in the binary
	}
	s := &server{hub: hub, files: http.FileServerFS(root), local: local, ctx: ctx}
	mux := http.NewServeMux()
	mux.Handle("GET /", s.files)
	mux.HandleFunc("GET /events", s.events)
	mux.HandleFunc("GET /state.json", s.state)
	for _, path := range probed {
		mux.Handle("GET "+path, probes)
	}
	return s.guard(mux)
}

// probed are the paths for other programs.
var probed = []string{"/metrics", "/healthz", "/readyz"}

func (s *server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Where other machines may ask, Prometheus on this one may know it by another name.
		if (s.local || fromHere(r) && !slices.Contains(probed, r.URL.Path)) && !unforged(r.Host) {
			http.Error(w, fmt.Sprintf("fencepost serve answers on this machine only to the name localhost and to addresses, not to %q; "+
				"let a proxy on this machine send the header \"Host: localhost\"", r.Host), http.StatusMisdirectedRequest)
			return
		}
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-cache")
		next.ServeHTTP(w, r)
	})
}

// fromHere reports whether a request came to a loopback address, whatever address the server listens on.
func fromHere(r *http.Request) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && loopback(at.String())
}

// unforged reports whether no foreign page can have made up a host. Whoever owns a domain can let a name in it lead
// to this machine. Then a browser takes that page and this server for one. Nobody can do so with an address. No browser
// leaves the host out: health checks with HTTP/1.0 do.
func unforged(host string) bool {
	name := hostname(host)
	return host == "" || name == "localhost" || net.ParseIP(name) != nil
}

func hostname(host string) string {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]") // of an IPv6 address without a port
	}
	return strings.ToLower(name)
}

func loopback(host string) bool {
	name := hostname(host)
	ip := net.ParseIP(name)
	return name == "localhost" || ip != nil && ip.IsLoopback()
}

// Loopback reports whether an address to listen on is one of this machine only.
func Loopback(addr string) bool { return loopback(addr) }

func (s *server) state(w http.ResponseWriter, _ *http.Request) {
	all, _ := s.hub.States()
	b, err := json.Marshal(all)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b)
}

// events streams the state: at once, after each change but at most once in a second, and at
// least every ten seconds.
func (s *server) events(w http.ResponseWriter, r *http.Request) {
	if s.streams.Add(1) > maxStreams {
		s.streams.Add(-1)
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	defer s.streams.Add(-1)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // else nginx keeps events back
	out := http.NewResponseController(w)
	for {
		all, changed := s.hub.States()
		b, err := json.Marshal(all)
		if err == nil {
			_ = out.SetWriteDeadline(time.Now().Add(30 * time.Second))
			_, err = fmt.Fprintf(w, "data: %s\n\n", b)
		}
		if err := errors.Join(err, out.Flush()); err != nil {
			return
		}
		for _, d := range []time.Duration{time.Second, 9 * time.Second} {
			timer := time.NewTimer(d)
			wake := changed
			if d == time.Second {
				wake = nil
			}
			select {
			case <-timer.C:
			case <-wake:
			case <-r.Context().Done():
				return
			case <-s.ctx.Done():
				return
			}
			timer.Stop()
		}
	}
}
