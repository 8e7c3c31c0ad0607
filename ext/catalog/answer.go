package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost/store"
)

// problem is an error as the protocol has it.
type problem struct {
	Code int    `json:"code"`
	Type string `json:"type"`
	Text string `json:"message"`
}

func (p *problem) Error() string { return "catalog: " + p.Text }

func bad(format string, args ...any) error {
	return &problem{http.StatusBadRequest, "BadRequestException", fmt.Sprintf(format, args...)}
}

func notFound(kind, format string, args ...any) error {
	return &problem{http.StatusNotFound, kind, fmt.Sprintf(format, args...)}
}

// broken is the error of a table that cannot be served until somebody repairs it.
func (t *table) broken(format string, args ...any) error {
	return &problem{http.StatusInternalServerError, "InternalServerError", fmt.Sprintf("the table %s.%s: ", t.Namespace, t.Name) + fmt.Sprintf(format, args...)}
}

func nothing(r *http.Request) error {
	return notFound("NotFoundException", "nothing is at %.100q; GET /v1/config lists what is served", r.URL.Path)
}

// refused is the answer to what would change something. The status 403 is the only one of the protocol that every such request can
// have, and that no client takes for an unknown outcome, as it does any 5xx after a commit.
func refused(what string) error {
	if what == "oauth" {
		return &problem{http.StatusForbidden, "NotAuthorizedException", "this catalog issues no tokens: give the client the token of its file, as the property token"}
	}
	return &problem{http.StatusForbidden, "ForbiddenException", "only the publisher of the log writes its table, since rows come from the log alone; append to the log, and read here"}
}

// problemOf returns what a client is told of an error.
func problemOf(err error) *problem {
	var p *problem
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, store.ErrDenied), errors.Is(err, store.ErrNoBucket), errors.Is(err, store.ErrInvalid):
		return &problem{http.StatusInternalServerError, "InternalServerError", shortened(err.Error())}
	}
	return &problem{http.StatusServiceUnavailable, "ServiceUnavailableException", shortened(err.Error())}
}

// shortened bounds text of others.
func shortened(s string) string {
	const most = 1000
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

type identifier struct {
	Namespace []string `json:"namespace"`
	Name      string   `json:"name"`
}

// listing is a page of namespaces, or of tables or views.
type listing struct {
	Namespaces  *[][]string   `json:"namespaces,omitempty"`
	Identifiers *[]identifier `json:"identifiers,omitempty"`
	Next        string        `json:"next-page-token,omitempty"`
}

func (s *Server) answer(w http.ResponseWriter, v any) error {
	s.send(w, http.StatusOK, v)
	return nil
}

func (s *Server) send(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	_, _ = w.Write(b)
}

// loadTries is how often a load lists anew because the object that was listed is gone.
const loadTries = 3

// load serves the newest version of a table.
func (s *Server) load(ctx context.Context, w http.ResponseWriter, r *http.Request, t *table) error {
	mode := r.URL.Query().Get("snapshots")
	if mode != "" && mode != "all" && mode != "refs" {
		return bad("snapshots is %.100q; it must be all or refs", mode)
	}
	for range loadTries {
		n, err := t.newest(ctx)
		if err != nil {
			return err
		}
		if n.info.Size > maxMetadata {
			return t.broken("%s has %d bytes, and at most %d are served", n.info.Key, n.info.Size, maxMetadata)
		}
		tag := tagOf(n, mode == "refs")
		if n.number >= n.before.number && strings.Contains(strings.Join(r.Header.Values("If-None-Match"), ","), tag) {
			w.Header().Set("ETag", tag)
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
		if err = s.write(ctx, w, t, n, mode == "refs"); !errors.Is(err, errChanged) {
			return err
		}
	}
	return errChanged
}

// write sends the metadata of a version.
func (s *Server) write(ctx context.Context, w http.ResponseWriter, t *table, n *newest, refs bool) error {
	room := max(n.info.Size, 1)
	if refs {
		room *= 3 // it is taken apart and written anew
	}
	if err := s.memory.Acquire(ctx, room); err != nil {
		return err
	}
	defer s.memory.Release(room)
	body, d, err := t.read(ctx, n)
	if err != nil {
		return err
	}
	if refs {
		if body, err = d.only(body); err != nil {
			return t.broken(notMetadata, n.info.Key, err)
		}
	}
	at, err := json.Marshal(strings.TrimRight(d.Location, "/") + "/" + n.info.Key)
	if err != nil {
		return err
	}
	head := fmt.Sprintf(`{"metadata-location":%s,"config":{},"metadata":`, at)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("ETag", tagOf(n, refs))
	w.Header().Set("Content-Length", strconv.Itoa(len(head)+len(body)+1))
	for _, part := range [][]byte{[]byte(head), body, []byte("}")} {
		_, _ = w.Write(part) // the client may have left
	}
	return nil
}

// only returns the document with those snapshots only that a branch or a tag names.
func (d *document) only(body []byte) ([]byte, error) {
	var all map[string]json.RawMessage
	var snapshots []json.RawMessage
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, err
	}
	if all["snapshots"] == nil {
		return body, nil
	}
	if err := json.Unmarshal(all["snapshots"], &snapshots); err != nil {
		return nil, err
	}
	named := map[int64]bool{d.Current: true}
	for _, ref := range d.Refs {
		named[ref.Snapshot] = true
	}
	kept := []json.RawMessage{}
	for _, s := range snapshots {
		var one struct {
			ID int64 `json:"snapshot-id"`
		}
		if err := json.Unmarshal(s, &one); err != nil {
			return nil, err
		}
		if named[one.ID] {
			kept = append(kept, s)
		}
	}
	b, err := json.Marshal(kept)
	if err != nil {
		return nil, err
	}
	all["snapshots"] = b
	return json.Marshal(all)
}

// tagOf names an answer. It is the same on all servers.
func tagOf(n *newest, refs bool) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%v", n.info.Key, n.info.Version, refs))
	return `"` + hex.EncodeToString(sum[:16]) + `"`
}
