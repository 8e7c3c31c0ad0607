package sim

import (
	"hash/fnv"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
)

// bucket is the simulated store: objects, conditions and versions. Only the scheduler's
// goroutine uses it.
type bucket struct {
	objects map[string]*object
	names   []string // keys of objects, sorted
	writes  uint64
	// content makes an object's version a hash of its body, like the ETags of many
	// servers.
	content bool
	// careless ignores the conditions of writes.
	careless bool
	// resolution is that of LastModified and Date. 0: the store reports no time.
	resolution time.Duration
	// bend, if not nil, may answer a request in place of the store. Tests use it to see
	// that the checks notice a fault.
	bend bend
	// pinned is called after a pin's object is written, deleted after any object is
	// deleted.
	pinned  func(*request)
	deleted func(key string, by *node)
}

// bend is a deliberate fault of the store or of a client. It reports whether it has
// answered the request.
type bend func(b *bucket, r *request, now time.Duration) (reply, bool)

// bends maps names to faults; see [Plan].Bent. Only tests add any.
var bends = map[string]bend{}

type object struct {
	key      string
	body     []byte
	version  store.Version
	modified time.Time
	id       uint64 // tag of the request that wrote it; see world.state
}

// origin is the time of day at which every history begins.
var origin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (b *bucket) date(now time.Duration) time.Time {
	if b.resolution == 0 {
		return time.Time{}
	}
	return origin.Add(now).Truncate(b.resolution)
}

func (b *bucket) info(o *object, date time.Time) store.Info {
	i := store.Info{Key: o.key, Version: o.version, Size: int64(len(o.body)), Date: date}
	if b.resolution != 0 {
		i.LastModified = o.modified.Truncate(b.resolution)
	}
	return i
}

func (b *bucket) get(r *request, now time.Duration) reply {
	o := b.objects[r.key]
	switch {
	case o == nil:
		return fail("get", r.key, store.ErrNotFound, http.StatusNotFound)
	case r.get.IfNoneMatch != "" && r.get.IfNoneMatch == o.version:
		return fail("get", r.key, store.ErrNotModified, http.StatusNotModified)
	}
	body := o.body
	if r.get.Offset > 0 || r.get.Length > 0 {
		if r.get.Offset >= int64(len(body)) {
			return fail("get", r.key, store.ErrRange, http.StatusRequestedRangeNotSatisfiable)
		}
		body = body[r.get.Offset:]
		if r.get.Length > 0 {
			body = body[:min(r.get.Length, int64(len(body)))]
		}
	}
	return reply{tag: o.id, info: b.info(o, b.date(now)), body: body}
}

func (b *bucket) put(r *request, now time.Duration) reply {
	old := b.objects[r.key]
	match, matching := r.cond.Match()
	if b.careless {
		matching = false
	}
	if r.cond == store.IfAbsent() && old != nil && !b.careless || matching && (old == nil || old.version != match) {
		return fail("put", r.key, store.ErrPrecondition, http.StatusPreconditionFailed)
	}
	b.writes++
	o := &object{key: r.key, body: r.body, modified: origin.Add(now), id: r.tag}
	n := b.writes
	if b.content {
		h := fnv.New64a()
		_, _ = h.Write(r.body)
		n = h.Sum64()
	}
	o.version = store.Version(strconv.FormatUint(n, 36))
	if old == nil {
		at, _ := slices.BinarySearch(b.names, r.key)
		b.names = slices.Insert(b.names, at, r.key)
	}
	b.objects[r.key] = o
	if b.pinned != nil && strings.HasPrefix(r.key, layout.PinPrefix) {
		b.pinned(r)
	}
	return reply{info: b.info(o, b.date(now))}
}

func (b *bucket) delete(keys []string, by *node) reply {
	for _, k := range keys {
		if b.objects[k] == nil {
			continue
		}
		delete(b.objects, k)
		at, _ := slices.BinarySearch(b.names, k)
		b.names = slices.Delete(b.names, at, at+1)
		if b.deleted != nil {
			b.deleted(k, by)
		}
	}
	return reply{}
}

// list returns the objects under a prefix, sorted by key.
func (b *bucket) list(prefix, after string, now time.Duration) []store.Info {
	at, _ := slices.BinarySearch(b.names, prefix)
	names := b.names[at:]
	if most := slices.IndexFunc(names, func(k string) bool { return !strings.HasPrefix(k, prefix) }); most >= 0 {
		names = names[:most]
	}
	if after >= prefix {
		at, found := slices.BinarySearch(names, after)
		if found {
			at++
		}
		names = names[at:]
	}
	infos, date := make([]store.Info, len(names)), b.date(now)
	for i, k := range names {
		infos[i] = b.info(b.objects[k], date)
	}
	return infos
}

// mask replaces the random part of a key.
func mask(key string) string {
	if i := strings.LastIndexByte(key, '/'); i >= 0 && len(key)-i > 36 && strings.Count(key[i:], "-") == 4 {
		return key[:i+1] + "*"
	}
	return key
}

// reply is the store's answer to a request.
type reply struct {
	tag   uint64 // of the object that it returns; see world.state
	info  store.Info
	body  []byte
	infos []store.Info
	err   error
}

func (r reply) String() string {
	e, ok := r.err.(*store.Error) //nolint:errorlint // made here
	switch {
	case r.err == nil:
		return "ok"
	case !ok:
		return r.err.Error()
	case e.Status != 0:
		return strconv.Itoa(e.Status)
	case e.Err != nil:
		return e.Err.Error()
	}
	return "failed"
}

func fail(op, key string, kind error, status int) reply {
	return reply{err: &store.Error{Op: op, Key: key, Kind: kind, Status: status}}
}
