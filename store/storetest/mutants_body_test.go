package storetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/fencepost/fencepost/store"
)

// bodyMutants: keys, bodies, uploads and contexts.
var bodyMutants = []mutant{
	{name: "keys are made lower-case", fails: []string{"OddKeys"}, apply: renamed(strings.ToLower)},
	{name: "keys are unescaped", fails: []string{"OddKeys"}, apply: renamed(func(key string) string { return strings.ReplaceAll(key, "%20", " ") })},
	{name: "keys have plus for space", fails: []string{"OddKeys"}, apply: renamed(func(key string) string { return strings.ReplaceAll(key, "+", " ") })},
	{name: "keys lose spaces", fails: []string{"OddKeys"}, apply: onPut(func(b *broken, ctx context.Context, key string, body []byte, cond store.Condition) (store.Info, error) {
		if strings.Contains(key, " ") {
			return store.Info{}, &store.Error{Op: "put", Key: key, Status: 400}
		}
		return b.Store.Put(ctx, key, body, &store.PutOptions{If: cond})
	})},
	{name: "bad keys are mended", fails: []string{"BadKeys"}, apply: renamed(func(key string) string {
		if store.CheckKey("", key) != nil {
			key = clean(key)
		}
		return key
	})},
	{name: "uploads do not look at keys", fails: []string{"BadKeys"}, apply: onUpload(func(b *broken, ctx context.Context, key string, r io.Reader, o *store.UploadOptions) (store.Info, error) {
		if store.CheckKey("", key) != nil {
			key = clean(key)
		}
		return b.Store.Upload(ctx, key, r, o)
	})},

	{name: "bodies are kept by reference", fails: []string{"Bodies"}, apply: func(b *broken) {
		var mu sync.Mutex
		kept := map[string][]byte{}
		b.put = func(ctx context.Context, key string, body []byte, cond store.Condition) (store.Info, error) {
			info, err := b.Store.Put(ctx, key, body, &store.PutOptions{If: cond})
			if err == nil {
				mu.Lock()
				kept[key] = body
				mu.Unlock()
			}
			return info, err
		}
		b.get = func(ctx context.Context, key string, o *store.GetOptions) (*store.Object, error) {
			obj, err := b.Store.Get(ctx, key, o)
			if err == nil && o == nil {
				mu.Lock()
				obj.Body = io.NopCloser(bytes.NewReader(kept[key]))
				mu.Unlock()
			}
			return obj, err
		}
	}},
	{name: "empty bodies are refused", fails: []string{"Bodies", "Ranges"}, apply: onPut(func(b *broken, ctx context.Context, key string, body []byte, cond store.Condition) (store.Info, error) {
		if len(body) == 0 {
			return store.Info{}, &store.Error{Op: "put", Key: key, Kind: store.ErrInvalid}
		}
		return b.Store.Put(ctx, key, body, &store.PutOptions{If: cond})
	})},
	{name: "large bodies are cut", fails: []string{"Bodies"}, apply: onPut(func(b *broken, ctx context.Context, key string, body []byte, cond store.Condition) (store.Info, error) {
		return b.Store.Put(ctx, key, body[:min(len(body), 1<<20)], &store.PutOptions{If: cond})
	})},

	{name: "upload loses what is after full parts", fails: []string{"Upload"}, apply: onUpload(func(b *broken, ctx context.Context, key string, r io.Reader, o *store.UploadOptions) (store.Info, error) {
		all, err := io.ReadAll(r)
		if n := len(all); n > 5*mib {
			all = all[:n/(5*mib)*5*mib]
		}
		if err != nil {
			return store.Info{}, err
		}
		return b.Store.Upload(ctx, key, bytes.NewReader(all), o)
	})},
	{name: "upload believes its hint", fails: []string{"Upload"}, apply: onUpload(func(b *broken, ctx context.Context, key string, r io.Reader, o *store.UploadOptions) (store.Info, error) {
		if o != nil && o.SizeHint > 0 {
			r = io.LimitReader(r, o.SizeHint)
		}
		return b.Store.Upload(ctx, key, r, o)
	})},
	{name: "upload of nothing makes nothing", fails: []string{"Upload"}, apply: onUpload(func(b *broken, ctx context.Context, key string, r io.Reader, o *store.UploadOptions) (store.Info, error) {
		info, err := b.Store.Upload(ctx, key, r, o)
		if err == nil && info.Size == 0 {
			err = b.Store.Delete(ctx, key)
		}
		return info, err
	})},
	{name: "upload ends where the body breaks off", fails: []string{"UploadFailing"}, apply: onUpload(func(b *broken, ctx context.Context, key string, r io.Reader, o *store.UploadOptions) (store.Info, error) {
		all, failed := io.ReadAll(r)
		info, err := b.Store.Upload(ctx, key, bytes.NewReader(all), o)
		return info, errors.Join(err, failed)
	})},
	{name: "upload says that a broken body is stored", fails: []string{"UploadFailing"}, apply: onUpload(func(b *broken, ctx context.Context, key string, r io.Reader, o *store.UploadOptions) (store.Info, error) {
		all, err := io.ReadAll(r)
		if err != nil {
			return store.Info{Key: key}, nil
		}
		return b.Store.Upload(ctx, key, bytes.NewReader(all), o)
	})},
	{name: "upload makes its key first", fails: []string{"UploadInvisible", "UploadFailing"}, apply: onUpload(func(b *broken, ctx context.Context, key string, r io.Reader, _ *store.UploadOptions) (store.Info, error) {
		if _, err := b.Store.Put(ctx, key, nil, &store.PutOptions{If: store.IfAbsent()}); err != nil {
			return store.Info{}, err
		}
		return b.Store.Upload(ctx, key, r, nil)
	})},
	{name: "upload ignores create", fails: []string{"UploadCreate"}, apply: onUpload(func(b *broken, ctx context.Context, key string, r io.Reader, _ *store.UploadOptions) (store.Info, error) {
		return b.Store.Upload(ctx, key, r, nil)
	})},
	{name: "large upload ignores create", fails: []string{"UploadCreate"}, apply: onUpload(func(b *broken, ctx context.Context, key string, r io.Reader, o *store.UploadOptions) (store.Info, error) {
		all, err := io.ReadAll(r)
		if err != nil {
			return store.Info{}, err
		}
		if len(all) > 5*mib {
			o = nil
		}
		return b.Store.Upload(ctx, key, bytes.NewReader(all), o)
	})},

	{name: "a cancelled context is not looked at", fails: []string{"CancelledBefore"}, apply: onGet(func(b *broken, _ context.Context, key string, o *store.GetOptions) (*store.Object, error) {
		return b.Store.Get(context.Background(), key, o)
	})},
	{name: "a cancelled Put says that it succeeded", fails: []string{"CancelledBefore"}, apply: onPut(func(b *broken, ctx context.Context, key string, body []byte, cond store.Condition) (store.Info, error) {
		info, err := b.Store.Put(ctx, key, body, &store.PutOptions{If: cond})
		if ctx.Err() != nil {
			err = nil
		}
		return info, err
	})},
	{name: "a cancelled Put is called invalid", fails: []string{"CancelledBefore"}, apply: onPut(func(b *broken, ctx context.Context, key string, body []byte, cond store.Condition) (store.Info, error) {
		if ctx.Err() != nil {
			return store.Info{}, &store.Error{Op: "put", Key: key, Kind: store.ErrInvalid}
		}
		return b.Store.Put(ctx, key, body, &store.PutOptions{If: cond})
	})},
	{name: "T05 a Put sent again reports its own echo", fails: []string{"CancelledDuring"}, apply: onPut(func(b *broken, ctx context.Context, key string, body []byte, cond store.Condition) (store.Info, error) {
		info, err := b.Store.Put(context.WithoutCancel(ctx), key, body, &store.PutOptions{If: cond})
		dawdle()
		if ctx.Err() != nil && err == nil {
			return b.Store.Put(context.WithoutCancel(ctx), key, body, &store.PutOptions{If: cond})
		}
		return info, err
	})},
	{name: "a cancelled Put stores half", fails: []string{"CancelledDuring"}, apply: onPut(func(b *broken, ctx context.Context, key string, body []byte, cond store.Condition) (store.Info, error) {
		dawdle()
		if ctx.Err() != nil {
			_, _ = b.Store.Put(context.WithoutCancel(ctx), key, body[:len(body)/2], &store.PutOptions{If: cond})
			return store.Info{}, &store.Error{Op: "put", Key: key, Err: ctx.Err()}
		}
		return b.Store.Put(ctx, key, body, &store.PutOptions{If: cond})
	})},
}
