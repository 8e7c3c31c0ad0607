package s3stub

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// object is one state of a key. It is immutable.
type object struct {
	body     []byte
	etag     string // without quotes
	modified time.Time
	meta     http.Header // of the user, X-Amz-Meta-…
}

func (o *object) quoted() string { return `"` + o.etag + `"` }

type bucket struct {
	mu      sync.Mutex
	objects map[string]*object
	uploads map[string]*upload
}

// condition is the condition in a write's headers.
type condition struct {
	ifMatch, ifNoneMatch string
	unquotedOnly         bool
}

// refused returns the answer to a write whose condition does not hold, nil if it holds.
func (c condition) refused(req *Request, old *object) *reply {
	switch {
	case c.ifNoneMatch == "*" && old != nil:
	case c.ifMatch == "":
		return nil
	case old == nil:
		return noSuchKey(req)
	case c.ifMatch == "*" || c.ifMatch == old.etag || !c.unquotedOnly && c.ifMatch == old.quoted():
		return nil
	}
	return fail(req, http.StatusPreconditionFailed, "PreconditionFailed", "a precondition did not hold")
}

func (b *bucket) get(key string) *object {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.objects[key]
}

func (b *bucket) delete(key string) {
	b.mu.Lock()
	delete(b.objects, key)
	b.mu.Unlock()
}

type entry struct {
	key string
	*object
}

// list returns up to limit objects with the prefix and keys greater than after, in order.
// It reports whether there are more.
func (b *bucket) list(prefix, after string, limit int) (page []entry, more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, o := range b.objects {
		if strings.HasPrefix(key, prefix) && key > after {
			page = append(page, entry{key, o})
		}
	}
	slices.SortFunc(page, func(a, b entry) int { return strings.Compare(a.key, b.key) })
	more = len(page) > limit
	return page[:min(limit, len(page))], more
}

// metaOf returns the user's metadata in a request.
func metaOf(req *Request) http.Header {
	meta := http.Header{}
	for name, values := range req.HTTP.Header {
		if strings.HasPrefix(name, "X-Amz-Meta-") {
			meta[name] = values
		}
	}
	return meta
}

func (s *Server) newObject(body []byte) *object {
	o := &object{body: body, modified: s.clock.Wall()}
	if s.opts.RandomETags {
		o.etag = fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())
	} else {
		sum := md5.Sum(body)
		o.etag = hex.EncodeToString(sum[:])
	}
	return o
}

// Put stores an object without a request, for tests. The caller must not change body
// afterwards. The bucket must exist.
func (s *Server) Put(bucketName, key string, body []byte) {
	b := s.buckets[bucketName]
	b.mu.Lock()
	defer b.mu.Unlock()
	b.objects[key] = s.newObject(body)
}

// Object returns the body under a key of a bucket, for tests. The caller must not change it.
// The bucket must exist.
func (s *Server) Object(bucketName, key string) ([]byte, bool) {
	if o := s.buckets[bucketName].get(key); o != nil {
		return o.body, true
	}
	return nil, false
}

// Uploads returns how many multipart uploads are neither completed nor aborted.
func (s *Server) Uploads() int {
	n := 0
	for _, b := range s.buckets {
		b.mu.Lock()
		n += len(b.uploads)
		b.mu.Unlock()
	}
	return n
}
