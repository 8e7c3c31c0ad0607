package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/fencepost/fencepost/ext/agent/session"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/writer"
)

// Upgrade is the protocol to which a request for /lines switches: lines of JSON, as fencepost append --protocol json has them.
const Upgrade = "fencepost-lines"

// lines serves a session of a client that has neither gRPC nor HTTP/2: GET /lines?url=…&promise=10s&wait=false.
func (s *Server) lines(w http.ResponseWriter, r *http.Request) {
	refuse := func(err error) { _ = connect.NewErrorWriter().Write(w, r, err) }
	// guard:agent-upgrade. Only a request that names the protocol gets a session: a browser cannot send such a request.
	//
	//mutant:replace r.Header.Get("Upgrade") != Upgrade => false
	if r.Header.Get("Upgrade") != Upgrade {
		w.Header().Set("Upgrade", Upgrade)
		http.Error(w, "agent: /lines is for the protocol "+Upgrade+"; send it in the header Upgrade, over HTTP/1.1", http.StatusUpgradeRequired)
		return
	}
	q := r.URL.Query()
	promise, err := time.ParseDuration(q.Get("promise"))
	if q.Get("promise") != "" && err != nil {
		refuse(connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("agent: promise is %q; write it as 10s", q.Get("promise"))))
		return
	}
	l, err := s.log(r.Context(), q.Get("url"))
	if err != nil {
		refuse(err)
		return
	}
	if _, own := l.session(); own {
		refuse(connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("agent: it leads %s itself; send Append, or start it without --lead", l.url)))
		return
	}
	o := &session.Options{Promise: promise, NoWait: q.Get("wait") == "false", Began: l.began, Clock: s.opts.Clock}
	if s.opts.Upload != nil {
		o.Upload = func(ctx context.Context, w *writer.Writer, path string, values map[string]string) (manifest.File, error) {
			return s.opts.Upload(ctx, l.st, w, path, values)
		}
	}
	if err := o.Validate(); err != nil {
		refuse(connect.NewError(connect.CodeInvalidArgument, err))
		return
	}
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		refuse(connect.NewError(connect.CodeInvalidArgument, errors.Join(errors.New("agent: /lines needs HTTP/1.1"), err)))
		return
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return
	}
	if _, err := conn.Write([]byte(strings.Join([]string{"HTTP/1.1 101 Switching Protocols", "Connection: Upgrade", "Upgrade: " + Upgrade, "", ""}, "\r\n"))); err != nil {
		return
	}
	// The client has been told how it ended.
	_ = session.New(session.NewLines(buf.Reader, conn), o).Lead(r.Context(), l.feed.Store(l.st), s.run(l))
}
