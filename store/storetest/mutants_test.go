package storetest

import (
	"context"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

// broken is a correct store with some methods replaced.
type broken struct {
	store.Store
	get    func(context.Context, string, *store.GetOptions) (*store.Object, error)
	put    func(context.Context, string, []byte, store.Condition) (store.Info, error)
	upload func(context.Context, string, io.Reader, *store.UploadOptions) (store.Info, error)
	list   func(context.Context, string, *store.ListOptions) iter.Seq2[store.Info, error]
	del    func(context.Context, ...string) error
}

func (b *broken) Get(ctx context.Context, key string, o *store.GetOptions) (*store.Object, error) {
	if b.get != nil {
		return b.get(ctx, key, o)
	}
	return b.Store.Get(ctx, key, o)
}

func (b *broken) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	if b.put != nil {
		return b.put(ctx, key, body, opts.Condition())
	}
	return b.Store.Put(ctx, key, body, opts)
}

func (b *broken) Upload(ctx context.Context, key string, r io.Reader, o *store.UploadOptions) (store.Info, error) {
	if b.upload != nil {
		return b.upload(ctx, key, r, o)
	}
	return b.Store.Upload(ctx, key, r, o)
}

func (b *broken) List(ctx context.Context, prefix string, o *store.ListOptions) iter.Seq2[store.Info, error] {
	if b.list != nil {
		return b.list(ctx, prefix, o)
	}
	return b.Store.List(ctx, prefix, o)
}

func (b *broken) Delete(ctx context.Context, keys ...string) error {
	if b.del != nil {
		return b.del(ctx, keys...)
	}
	return b.Store.Delete(ctx, keys...)
}

// mutant breaks a store. All clients of a run share one broken store, unless
// each is to be broken for itself.
type mutant struct {
	name  string
	fails []string
	apply func(b *broken)
	each  bool
}

func (m mutant) dialer() func() store.Store {
	st := memstore.New(nil)
	one := &broken{Store: st}
	if !m.each {
		m.apply(one)
		return func() store.Store { return one }
	}
	return func() store.Store {
		b := &broken{Store: st}
		m.apply(b)
		return b
	}
}

// onPut, onGet and onUpload replace one method.
func onPut(f func(*broken, context.Context, string, []byte, store.Condition) (store.Info, error)) func(*broken) {
	return func(b *broken) {
		b.put = func(ctx context.Context, key string, body []byte, cond store.Condition) (store.Info, error) {
			return f(b, ctx, key, body, cond)
		}
	}
}

func onGet(f func(*broken, context.Context, string, *store.GetOptions) (*store.Object, error)) func(*broken) {
	return func(b *broken) {
		b.get = func(ctx context.Context, key string, o *store.GetOptions) (*store.Object, error) {
			return f(b, ctx, key, o)
		}
	}
}

func onUpload(f func(*broken, context.Context, string, io.Reader, *store.UploadOptions) (store.Info, error)) func(*broken) {
	return func(b *broken) {
		b.upload = func(ctx context.Context, key string, r io.Reader, o *store.UploadOptions) (store.Info, error) {
			return f(b, ctx, key, r, o)
		}
	}
}

// putIf replaces the condition of a Put.
func putIf(f func(b *broken, ctx context.Context, key string, cond store.Condition) (store.Condition, error)) func(*broken) {
	return onPut(func(b *broken, ctx context.Context, key string, body []byte, cond store.Condition) (store.Info, error) {
		cond, err := f(b, ctx, key, cond)
		if err != nil {
			return store.Info{}, err
		}
		return b.Store.Put(ctx, key, body, &store.PutOptions{If: cond})
	})
}

// infos changes every Info on its way out of some methods.
func infos(ops string, f func(*store.Info)) func(*broken) {
	return func(b *broken) {
		if strings.Contains(ops, "put") {
			b.put = func(ctx context.Context, key string, body []byte, cond store.Condition) (store.Info, error) {
				info, err := b.Store.Put(ctx, key, body, &store.PutOptions{If: cond})
				f(&info)
				return info, err
			}
		}
		if strings.Contains(ops, "get") {
			b.get = func(ctx context.Context, key string, o *store.GetOptions) (*store.Object, error) {
				obj, err := b.Store.Get(ctx, key, o)
				if err == nil {
					f(&obj.Info)
				}
				return obj, err
			}
		}
		if strings.Contains(ops, "list") {
			b.list = listed(b, func(all []store.Info) []store.Info {
				for i := range all {
					f(&all[i])
				}
				return all
			})
		}
	}
}

// listed changes whole listings, which it sorts first.
func listed(b *broken, f func([]store.Info) []store.Info) func(context.Context, string, *store.ListOptions) iter.Seq2[store.Info, error] {
	return func(ctx context.Context, prefix string, o *store.ListOptions) iter.Seq2[store.Info, error] {
		return func(yield func(store.Info, error) bool) {
			var all []store.Info
			for info, err := range b.Store.List(ctx, prefix, o) {
				if err != nil {
					yield(info, err)
					return
				}
				all = append(all, info)
			}
			slices.SortFunc(all, func(x, y store.Info) int { return strings.Compare(x.Key, y.Key) })
			for _, info := range f(all) {
				if !yield(info, nil) {
					return
				}
			}
		}
	}
}

// dawdle is the time that a request takes, in which others get to work. All
// requests of a race take it, so that nothing depends on how long it is.
func dawdle() { time.Sleep(100 * time.Microsecond) }

func current(b *broken, key string) (store.Version, bool) {
	obj, err := b.Store.Get(context.Background(), key, nil)
	if err != nil {
		return "", false
	}
	return obj.Version, true
}

func precondition(key string) error {
	return &store.Error{Op: "put", Key: key, Kind: store.ErrPrecondition}
}

// renamed lets keys reach the store changed.
func renamed(f func(string) string) func(*broken) {
	return func(b *broken) {
		b.get = func(ctx context.Context, key string, o *store.GetOptions) (*store.Object, error) {
			obj, err := b.Store.Get(ctx, f(key), o)
			if err == nil {
				obj.Key = key
			}
			return obj, err
		}
		b.put = func(ctx context.Context, key string, body []byte, cond store.Condition) (store.Info, error) {
			info, err := b.Store.Put(ctx, f(key), body, &store.PutOptions{If: cond})
			info.Key = key
			return info, err
		}
		b.del = func(ctx context.Context, keys ...string) error {
			keys = slices.Clone(keys)
			for i := range keys {
				keys[i] = f(keys[i])
			}
			return b.Store.Delete(ctx, keys...)
		}
	}
}

func clean(key string) string {
	return "ok" + strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f || r == '\\' || r == '/' || r == '.' || r == 0xfffd {
			return '_'
		}
		return r
	}, key)[:min(len(key), 200)]
}

var mutants = slices.Concat(writeMutants, readMutants, listMutants, bodyMutants)
