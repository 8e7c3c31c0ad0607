package memstore

import (
	"context"
	"net/url"
	"sync"

	"github.com/fencepost/fencepost/store"
)

func init() { store.Register("mem", open) }

var (
	sharedMu sync.Mutex
	shared   = map[string]*Store{}
)

// open returns the store of a mem://name[/prefix] URL. The first call makes the store; it
// lives as long as the process.
func open(_ context.Context, u *url.URL) (store.Store, error) {
	bad := func(hint string) error {
		return &store.Error{Kind: store.ErrInvalid, Hint: hint}
	}
	switch {
	case u.Host == "":
		return nil, bad("a store in memory is shared by name; write mem://name, or call memstore.New for one that is not shared")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, bad("a store in memory takes no user, parameters or fragment; write mem://name or mem://name/prefix")
	}
	sharedMu.Lock()
	st := shared[u.Host]
	if st == nil {
		st = New(&Options{Name: "mem://" + u.Host})
		shared[u.Host] = st
	}
	sharedMu.Unlock()
	return store.Sub(st, u.Path)
}
