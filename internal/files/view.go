package files

import (
	"context"
	"errors"
	"io"
	"iter"
	"strings"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
)

// View returns the part of a shared store that one log uses. Its keys are those of the log:
// "file/<epoch>/<name>" is the object "<log>/<epoch>/<name>" of st. Any other key lies below
// "_fencepost/", such as the mark, and what probes write below "tmp/".
//
// guard:files-own. Logs that share a store for files do not reach each other's files: each log lists
// and deletes only below its own id.
//
//mutant:replace layout.FilesDir(log) => "shared"
func View(st store.Store, log fence.ID) store.Store {
	// They never fail: the store is not nil, and both prefixes are names.
	own, _ := store.Sub(st, layout.FilesDir(log))
	shared, _ := store.Sub(st, layout.SharedDir)
	return &view{st: st, own: own, shared: shared}
}

type view struct{ st, own, shared store.Store }

// at returns where a key or a prefix lies, and its name there.
func (v *view) at(key string) (store.Store, string) {
	if name, ok := strings.CutPrefix(key, layout.FilePrefix); ok {
		return v.own, name
	}
	return v.shared, key
}

func (v *view) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	st, name := v.at(key)
	obj, err := st.Get(ctx, name, opts)
	if err != nil {
		return nil, err
	}
	obj.Key = key
	return obj, nil
}

func (v *view) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	st, name := v.at(key)
	info, err := st.Put(ctx, name, body, opts)
	info.Key = key
	return info, err
}

func (v *view) Upload(ctx context.Context, key string, body io.Reader, opts *store.UploadOptions) (store.Info, error) {
	st, name := v.at(key)
	info, err := st.Upload(ctx, name, body, opts)
	info.Key = key
	return info, err
}

// List lists the log's own files, or something that all logs share.
func (v *view) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	st, below := v.at(prefix)
	if opts != nil {
		_, after := v.at(opts.StartAfter)
		opts = &store.ListOptions{StartAfter: after}
	}
	return func(yield func(store.Info, error) bool) {
		for info, err := range st.List(ctx, below, opts) {
			info.Key = strings.TrimSuffix(prefix, below) + info.Key
			if !yield(info, err) {
				return
			}
		}
	}
}

func (v *view) Delete(ctx context.Context, keys ...string) error {
	of := map[store.Store][]string{}
	for _, key := range keys {
		st, name := v.at(key)
		of[st] = append(of[st], name)
	}
	for st, names := range of {
		if err := st.Delete(ctx, names...); err != nil {
			return err
		}
	}
	return nil
}

func (v *view) Traits() store.Traits { return v.st.Traits() }

// AbortUploads is that of [store.UploadAborter].
func (v *view) AbortUploads(ctx context.Context, prefix string, doomed func(store.Info) bool) (int, error) {
	st, below := v.at(prefix)
	aborter, ok := store.As[store.UploadAborter](st)
	if !ok {
		return 0, nil
	}
	return aborter.AbortUploads(ctx, below, func(info store.Info) bool {
		info.Key = strings.TrimSuffix(prefix, below) + info.Key
		return doomed(info)
	})
}

// Expiries is that of [store.ExpiryTeller], for the log's own files.
func (v *view) Expiries(ctx context.Context, _ string) ([]store.Expiry, error) {
	teller, ok := store.As[store.ExpiryTeller](v.own)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	rules, err := teller.Expiries(ctx, "")
	for i := range rules {
		rules[i].Prefix = layout.FilePrefix + rules[i].Prefix
	}
	return rules, err
}
