package lock

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
)

const (
	// buckets is how many objects the names of one prefix share. It is part of the format: who counts otherwise looks
	// for a name in another object.
	buckets = 4096
	// maxBucket and maxSession bound the objects, in bytes.
	maxBucket  = 1 << 20
	maxSession = 4 << 10
)

// bucket is the object of all names with one hash. It is never deleted.
type bucket struct {
	Format   int      `json:"format"`
	Requires []string `json:"requires,omitempty"`
	Nonce    fence.ID `json:"nonce"` // another one with each write
	// Token is the last one that was given to any name of the bucket.
	Token fence.Epoch `json:"token"`
	// Share is about eight times how many acquisitions of others come between a wait's beginning and its end. It is a hint.
	Share uint64  `json:"share,omitempty"`
	Held  []entry `json:"held"` // in the order of their names

	version store.Version // "" if there is no object
}

// entry is a name that is held.
type entry struct {
	Name       string      `json:"name"`
	Token      fence.Epoch `json:"token"`
	Session    fence.ID    `json:"session"`
	Holder     string      `json:"holder"`
	ValidityMS int64       `json:"validity_ms"`
	Since      time.Time   `json:"since"` // the holder's time of day, for people
	// Placed: somebody who does not wait has put a placeholder for the session.
	Placed bool `json:"placed,omitempty"`
}

func (e *entry) validity() time.Duration { return time.Duration(e.ValidityMS) * time.Millisecond }

// sessionDoc says that a process lives.
type sessionDoc struct {
	Format   int      `json:"format"`
	Requires []string `json:"requires,omitempty"`
	Nonce    fence.ID `json:"nonce"`
	Holder   string   `json:"holder,omitempty"` // "" in a placeholder
	Expired  bool     `json:"expired,omitempty"`
	By       string   `json:"by,omitempty"` // who expired it, or put the placeholder
}

// bucketKey is the object of a name.
func (l *Locker) bucketKey(name string) string {
	sum := sha256.Sum256([]byte(name))
	return fmt.Sprintf("%s/name/%03x.json", l.prefix, (int(sum[0])<<8|int(sum[1]))%buckets)
}

func (l *Locker) sessionKey(id fence.ID) string {
	return l.prefix + "/session/" + id.String() + ".json"
}

func (b *bucket) search(name string) (int, bool) {
	return slices.BinarySearchFunc(b.Held, name, func(e entry, name string) int { return strings.Compare(e.Name, name) })
}

// find returns the entry of a name, or nil if nobody holds it.
func (b *bucket) find(name string) *entry {
	if i, ok := b.search(name); ok {
		return &b.Held[i]
	}
	return nil
}

// has reports whether the bucket has the entry of a lock.
func (b *bucket) has(k *Lock) bool {
	e := b.find(k.name)
	return e != nil && e.Session == k.session.id && e.Token == k.token.Epoch()
}

// with returns the bucket in which e holds its name.
func (b *bucket) with(e entry) *bucket {
	next := b.without(e.Name)
	i, _ := next.search(e.Name)
	next.Held = slices.Insert(next.Held, i, e)
	next.Token = e.Token
	return next
}

// without returns the bucket in which nobody holds a name. Its token stays.
//
// guard:lock-token. The last token of a bucket is kept when a name is released, and each acquisition of any name gets a
// greater one.
//
//mutant:replace Token: b.Token, Share => Token: max(b.Token, 1) - 1, Share
func (b *bucket) without(name string) *bucket {
	held := slices.DeleteFunc(slices.Clone(b.Held), func(e entry) bool { return e.Name == name })
	return &bucket{Token: b.Token, Share: b.Share, Held: held}
}

// placed returns the bucket in which the entry of a name has been Placed.
func (b *bucket) placed(name string) *bucket {
	next := &bucket{Token: b.Token, Share: b.Share, Held: slices.Clone(b.Held)}
	next.find(name).Placed = true
	return next
}

func decodeBucket(key string, body []byte) (*bucket, error) {
	var b bucket
	if err := document.Decode(key, body, &b); err != nil {
		return nil, err
	}
	// guard:lock-great-token. A token that no counting reaches is refused.
	//
	//mutant:replace b.Token > fence.MaxEpoch => false
	if b.Token > fence.MaxEpoch {
		return nil, document.Corrupt(key, "it has token %v, which no counting reaches, so something else has written it", b.Token)
	}
	for i, e := range b.Held {
		v := e.validity()
		switch {
		case e.Token == 0 || e.Token > b.Token:
			return nil, document.Corrupt(key, "the name %.64q has token %v, and the last one is %v", e.Name, e.Token, b.Token)
		case errors.Is(checkName(e.Name), ErrOptions), e.Session == fence.ID{}, v < minValidity || v > maxValidity, len(e.Holder) > maxText:
			return nil, document.Corrupt(key, "the entry of %.64q is none that a lock writes", e.Name)
		case i > 0 && b.Held[i-1].Name >= e.Name:
			return nil, document.Corrupt(key, "the names are not in order")
		}
	}
	return &b, nil
}
