package storetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/fencepost/fencepost/store"
)

// readMutants: reads that show what is not there, or not any more.
var readMutants = []mutant{
	{name: "the version is the size", fails: []string{"Versions"}, apply: infos("put get list", func(i *store.Info) {
		i.Version = store.Version(strings.Repeat("x", int(i.Size%100)+1))
	})},
	{name: "Put says another version than Get", fails: []string{"Versions", "CreateRace"}, apply: infos("put", func(i *store.Info) { i.Version = `"` + i.Version + `"` })},
	{name: "List says another version than Get", fails: []string{"Versions", "ReadAfterWrite"}, apply: infos("list", func(i *store.Info) { i.Version = "W/" + i.Version })},
	{name: "Put tells no version", fails: []string{"Conditions"}, apply: infos("put", func(i *store.Info) { i.Version = "" })},
	{name: "list escapes keys", fails: []string{"OddKeys"}, apply: func(b *broken) {
		b.list = listed(b, func(all []store.Info) []store.Info {
			for i := range all {
				all[i].Key = strings.ReplaceAll(all[i].Key, "%", "%25")
			}
			return all
		})
	}},
	{name: "Get tells the version of the moment after", fails: []string{"TornReads"}, apply: onGet(func(b *broken, ctx context.Context, key string, o *store.GetOptions) (*store.Object, error) {
		obj, err := b.Store.Get(ctx, key, o)
		if err != nil {
			return nil, err
		}
		dawdle()
		if v, ok := current(b, key); ok {
			obj.Version = v
		}
		return obj, nil
	})},
	{name: "Get tells the version of the moment before", fails: []string{"TornReads"}, apply: onGet(func(b *broken, ctx context.Context, key string, o *store.GetOptions) (*store.Object, error) {
		v, ok := current(b, key)
		dawdle()
		obj, err := b.Store.Get(ctx, key, o)
		if err == nil && ok {
			obj.Version = v
		}
		return obj, err
	})},
	{name: "Upload of parts tells a version of its own", fails: []string{"Upload"}, apply: onUpload(func(b *broken, ctx context.Context, key string, r io.Reader, o *store.UploadOptions) (store.Info, error) {
		info, err := b.Store.Upload(ctx, key, r, o)
		if info.Size > 5*mib {
			info.Version += "-2"
		}
		return info, err
	})},
	{name: "Get reads in two halves", fails: []string{"TornReads"}, apply: onGet(func(b *broken, ctx context.Context, key string, o *store.GetOptions) (*store.Object, error) {
		obj, err := b.Store.Get(ctx, key, o)
		if err != nil || obj.Size < 2 || o != nil {
			return obj, err
		}
		half := obj.Size / 2
		head := io.LimitReader(obj.Body, half)
		dawdle()
		tail, err := b.Store.Get(ctx, key, &store.GetOptions{Offset: half, Length: obj.Size - half})
		if err != nil {
			return obj, nil
		}
		return &store.Object{Info: obj.Info, Body: io.NopCloser(io.MultiReader(head, tail.Body))}, nil
	})},

	{name: "dates of the client's own", fails: []string{"Dates"}, apply: infos("get", func(i *store.Info) { i.Date = i.Date.Add(-time.Hour) })},
	{name: "dates since the year one", fails: []string{"Dates"}, apply: infos("list", func(i *store.Info) { i.LastModified = time.Unix(0, 0) })},
	{name: "List tells no dates", fails: []string{"Dates"}, apply: infos("list", func(i *store.Info) { i.LastModified = time.Time{} })},
	{name: "LastModified goes back", fails: []string{"Dates"}, apply: func(b *broken) {
		shift := -time.Minute
		infos("get", func(i *store.Info) {
			shift -= 2 * time.Second
			i.LastModified = i.LastModified.Add(shift)
		})(b)
	}},

	{name: "ranges are ignored", fails: []string{"Ranges"}, apply: onGet(func(b *broken, ctx context.Context, key string, _ *store.GetOptions) (*store.Object, error) {
		return b.Store.Get(ctx, key, nil)
	})},
	{name: "ranges past the end are refused", fails: []string{"Ranges"}, apply: onGet(func(b *broken, ctx context.Context, key string, o *store.GetOptions) (*store.Object, error) {
		obj, err := b.Store.Get(ctx, key, o)
		if err == nil && o != nil && o.Length > 0 && o.Offset+o.Length > obj.Size {
			return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrRange}
		}
		return obj, err
	})},
	{name: "ranges behind the end are empty", fails: []string{"Ranges"}, apply: onGet(func(b *broken, ctx context.Context, key string, o *store.GetOptions) (*store.Object, error) {
		obj, err := b.Store.Get(ctx, key, o)
		if errors.Is(err, store.ErrRange) {
			obj, err = b.Store.Get(ctx, key, nil)
			if err == nil {
				obj.Body = io.NopCloser(strings.NewReader(""))
			}
		}
		return obj, err
	})},
	{name: "negative ranges are ignored", fails: []string{"Ranges"}, apply: onGet(func(b *broken, ctx context.Context, key string, o *store.GetOptions) (*store.Object, error) {
		if o != nil && min(o.Offset, o.Length) < 0 {
			o = nil
		}
		return b.Store.Get(ctx, key, o)
	})},
	{name: "the size is that of the range", fails: []string{"Ranges"}, apply: onGet(func(b *broken, ctx context.Context, key string, o *store.GetOptions) (*store.Object, error) {
		obj, err := b.Store.Get(ctx, key, o)
		if err == nil && o != nil && o.Length > 0 {
			obj.Size = o.Length
		}
		return obj, err
	})},
	{name: "IfNoneMatch is ignored", fails: []string{"NotModified"}, apply: onGet(func(b *broken, ctx context.Context, key string, o *store.GetOptions) (*store.Object, error) {
		if o != nil {
			o = &store.GetOptions{Offset: o.Offset, Length: o.Length}
		}
		return b.Store.Get(ctx, key, o)
	})},
	{name: "IfNoneMatch matches anything", fails: []string{"NotModified"}, apply: onGet(func(b *broken, ctx context.Context, key string, o *store.GetOptions) (*store.Object, error) {
		if o != nil && o.IfNoneMatch != "" {
			return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrNotModified}
		}
		return b.Store.Get(ctx, key, o)
	})},

	{name: "each client caches what it read", each: true, fails: []string{"ReadAfterWrite"}, apply: func(b *broken) {
		var mu sync.Mutex
		cache := map[string]*store.Object{}
		bodies := map[string][]byte{}
		reads := map[string]int{}
		b.get = func(ctx context.Context, key string, o *store.GetOptions) (*store.Object, error) {
			mu.Lock()
			defer mu.Unlock()
			// Every second read is served from the cache.
			if reads[key]++; o == nil && reads[key]%2 == 0 {
				if obj := cache[key]; obj != nil {
					return &store.Object{Info: obj.Info, Body: io.NopCloser(bytes.NewReader(bodies[key]))}, nil
				}
			}
			obj, err := b.Store.Get(ctx, key, o)
			if err == nil && o == nil {
				cache[key] = obj
				bodies[key], _ = io.ReadAll(obj.Body)
				return &store.Object{Info: obj.Info, Body: io.NopCloser(bytes.NewReader(bodies[key]))}, nil
			}
			return obj, err
		}
	}},
}
