package store

import (
	"context"
	"io"
	"iter"
	"strings"
)

// Sub returns the part of st below prefix: its key "k" is the key prefix + "/k" of st.
// Sub(st, "orders") is how a log gets a folder of its own in a bucket. No key of the view
// leads out of the prefix.
//
// A prefix may have several parts ("team/orders"). Slashes at its ends do not matter. An
// empty prefix returns st itself; an invalid one is [ErrInvalid].
func Sub(st Store, prefix string) (Store, error) {
	if IsNil(st) {
		return nil, &Error{Op: "sub", Key: prefix, Kind: ErrInvalid, Hint: "the store is nil"}
	}
	prefix = strings.Trim(prefix, "/")
	if prefix == "" {
		return st, nil
	}
	if err := CheckKey("sub", prefix); err != nil {
		return nil, err
	}
	if s, ok := st.(*sub); ok {
		return &sub{st: s.st, prefix: s.prefix + prefix + "/"}, nil
	}
	return &sub{st: st, prefix: prefix + "/"}, nil
}

type sub struct {
	st     Store
	prefix string
}

func (s *sub) Get(ctx context.Context, key string, opts *GetOptions) (*Object, error) {
	if err := CheckKey("get", key); err != nil {
		return nil, err
	}
	obj, err := s.st.Get(ctx, s.prefix+key, opts)
	if err != nil {
		return nil, err
	}
	obj.Key = key
	return obj, nil
}

func (s *sub) Put(ctx context.Context, key string, body []byte, opts *PutOptions) (Info, error) {
	if err := CheckKey("put", key); err != nil {
		return Info{}, err
	}
	info, err := s.st.Put(ctx, s.prefix+key, body, opts)
	info.Key = key
	return info, err
}

func (s *sub) Upload(ctx context.Context, key string, body io.Reader, opts *UploadOptions) (Info, error) {
	if err := CheckKey("upload", key); err != nil {
		return Info{}, err
	}
	info, err := s.st.Upload(ctx, s.prefix+key, body, opts)
	info.Key = key
	return info, err
}

func (s *sub) List(ctx context.Context, prefix string, opts *ListOptions) iter.Seq2[Info, error] {
	if err := CheckPrefix("list", prefix); err != nil {
		return func(yield func(Info, error) bool) { yield(Info{}, err) }
	}
	var inner *ListOptions
	if opts != nil && opts.StartAfter != "" {
		inner = &ListOptions{StartAfter: s.prefix + opts.StartAfter}
	}
	return func(yield func(Info, error) bool) {
		for info, err := range s.st.List(ctx, s.prefix+prefix, inner) {
			info.Key = strings.TrimPrefix(info.Key, s.prefix)
			if !yield(info, err) {
				return
			}
		}
	}
}

func (s *sub) Delete(ctx context.Context, keys ...string) error {
	full := make([]string, len(keys))
	for i, key := range keys {
		if err := CheckKey("delete", key); err != nil {
			return err
		}
		full[i] = s.prefix + key
	}
	return s.st.Delete(ctx, full...)
}

// Above returns the store that s is a part of, and the prefix of that part. No name of this package has it: package
// manifest finds it to see whether a place lies within a log.
func (s *sub) Above() (st Store, prefix string) { return s.st, strings.TrimSuffix(s.prefix, "/") }

func (s *sub) Traits() Traits {
	t := s.st.Traits()
	t.Name = strings.TrimSuffix(t.Name, "/") + "/" + strings.TrimSuffix(s.prefix, "/")
	return t
}
