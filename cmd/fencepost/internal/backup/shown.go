package backup

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/store"
)

// shown is a store in which some objects are not seen, and others are those of another store.
type shown struct {
	store.Store
	hidden  func(key string) bool
	instead map[string]other // by key
}

// other is an object of another store.
type other struct {
	st  store.Store
	key string
	is  store.Info // as it is listed
}

func (s *shown) Unwrap() store.Store { return s.Store }

func (s *shown) Get(ctx context.Context, key string, o *store.GetOptions) (*store.Object, error) {
	if other, ok := s.instead[key]; ok {
		obj, err := other.st.Get(ctx, other.key, o)
		if err == nil {
			obj.Key = key
		}
		return obj, err
	}
	if s.hidden != nil && s.hidden(key) {
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrNotFound}
	}
	return s.Store.Get(ctx, key, o)
}

func (s *shown) List(ctx context.Context, prefix string, o *store.ListOptions) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		more := slices.DeleteFunc(slices.Sorted(maps.Keys(s.instead)), func(key string) bool {
			return !strings.HasPrefix(key, prefix) || o != nil && key <= o.StartAfter
		})
		upTo := func(key string) bool {
			for len(more) > 0 && (key == "" || more[0] <= key) {
				if !yield(s.instead[more[0]].is, nil) {
					return false
				}
				more = more[1:]
			}
			return true
		}
		for info, err := range s.Store.List(ctx, prefix, o) {
			if err == nil && !upTo(info.Key) {
				return
			}
			_, replaced := s.instead[info.Key]
			if err == nil && (replaced || s.hidden != nil && s.hidden(info.Key)) {
				continue
			}
			if !yield(info, err) {
				return
			}
		}
		upTo("")
	}
}
