package state

import (
	"slices"
	"sync"
)

// pagesCached is how many pages a [Log] remembers: enough for a caller that reads a list
// one entry at a time, or all lists in turn.
const pagesCached = 8

// pageCache remembers the pages that were read last. Pages never change, so what it
// returns is never stale.
type pageCache struct {
	mu     sync.Mutex
	recent []cachedPage // the one used last comes last
}

type cachedPage struct {
	key     string
	entries any
}

func (c *pageCache) get(key string) (any, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.recent, func(p cachedPage) bool { return p.key == key })
	if i < 0 {
		return nil, false
	}
	p := c.recent[i]
	c.recent = append(slices.Delete(c.recent, i, i+1), p)
	return p.entries, true
}

func (c *pageCache) put(key string, entries any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recent = slices.DeleteFunc(c.recent, func(p cachedPage) bool { return p.key == key })
	if len(c.recent) == pagesCached {
		c.recent = slices.Delete(c.recent, 0, 1)
	}
	c.recent = append(c.recent, cachedPage{key, entries})
}
