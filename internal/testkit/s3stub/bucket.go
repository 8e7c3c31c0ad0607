package s3stub

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
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
}

func (o *object) quoted() string { return `"` + o.etag + `"` }

type bucket struct {
	mu      sync.Mutex
	objects map[string]*object
	// sorted holds keys in order, some of which may be deleted; added holds later keys. A
	// listing merges them, so that a write costs no more than one into a map.
	sorted, added []string
	uploads       map[string]*upload
}

func newBucket() *bucket {
	return &bucket{objects: map[string]*object{}, uploads: map[string]*upload{}}
}

// condition is the condition in a write's headers.
type condition struct {
	ifMatch, ifNoneMatch string
	unquotedOnly         bool
}

type verdict int

const (
	holds verdict = iota
	fails
	missing // If-Match on a key that does not exist: S3 answers 404
)

func (c condition) judge(old *object) verdict {
	switch {
	case c.ifNoneMatch == "*" && old != nil:
		return fails
	case c.ifMatch == "":
		return holds
	case old == nil:
		return missing
	case c.ifMatch == "*" || c.ifMatch == old.etag || !c.unquotedOnly && c.ifMatch == old.quoted():
		return holds
	}
	return fails
}

// put stores o if the condition holds, in one atomic step.
func (b *bucket) put(key string, o *object, c condition) verdict {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.putLocked(key, o, c)
}

func (b *bucket) putLocked(key string, o *object, c condition) verdict {
	old := b.objects[key]
	if v := c.judge(old); v != holds {
		return v
	}
	if old == nil {
		b.added = append(b.added, key)
	}
	b.objects[key] = o
	return holds
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
	b.merge()
	from, found := slices.BinarySearch(b.sorted, max(prefix, after))
	if found && b.sorted[from] == after {
		from++
	}
	for _, key := range b.sorted[from:] {
		if !strings.HasPrefix(key, prefix) {
			break
		}
		o, live := b.objects[key]
		if !live {
			continue
		}
		if len(page) == limit {
			return page, true
		}
		page = append(page, entry{key, o})
	}
	return page, false
}

// merge moves added into sorted and drops deleted keys.
func (b *bucket) merge() {
	if len(b.added) == 0 {
		return
	}
	slices.Sort(b.added)
	merged := make([]string, 0, len(b.objects))
	keep := func(key string) {
		// A key that was deleted and created again is in both.
		if _, live := b.objects[key]; live && (len(merged) == 0 || merged[len(merged)-1] != key) {
			merged = append(merged, key)
		}
	}
	i := 0
	for _, key := range b.added {
		for ; i < len(b.sorted) && b.sorted[i] <= key; i++ {
			keep(b.sorted[i])
		}
		keep(key)
	}
	for ; i < len(b.sorted); i++ {
		keep(b.sorted[i])
	}
	b.sorted, b.added = merged, nil
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
	if b, found := s.bucket(bucketName); found {
		b.put(key, s.newObject(body), condition{})
	}
}

// Object returns the body under a key of a bucket, for tests. The caller must not change it.
func (s *Server) Object(bucketName, key string) ([]byte, bool) {
	b, found := s.bucket(bucketName)
	if !found {
		return nil, false
	}
	if o := b.get(key); o != nil {
		return o.body, true
	}
	return nil, false
}

// Uploads returns how many multipart uploads are neither completed nor aborted.
func (s *Server) Uploads() int {
	n := 0
	s.buckets.Range(func(_, v any) bool {
		b := v.(*bucket)
		b.mu.Lock()
		n += len(b.uploads)
		b.mu.Unlock()
		return true
	})
	return n
}

func (s *Server) bucket(name string) (*bucket, bool) {
	v, found := s.buckets.Load(name)
	if !found {
		return nil, false
	}
	return v.(*bucket), true
}
