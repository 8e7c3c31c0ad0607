package store_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/dirstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// twice sends each upload twice and passes on the second answer.
type twice struct{ store.Store }

func (s twice) Upload(ctx context.Context, key string, body io.Reader, opts *store.UploadOptions) (store.Info, error) {
	b, err := io.ReadAll(body)
	if err != nil {
		return store.Info{}, err
	}
	_, _ = s.Store.Upload(ctx, key, bytes.NewReader(b), opts)
	return s.Store.Upload(ctx, key, bytes.NewReader(b), opts)
}

// newStores are a store that reads a body before it refuses it, and one that does not.
var newStores = map[string]func(t *testing.T) store.Store{
	"memory": func(*testing.T) store.Store { return memstore.New(nil) },
	"directory": func(t *testing.T) store.Store {
		st, err := dirstore.Open(t.TempDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return st
	},
}

// guard:upload-echo. Without this check: a proxy sends the end of A's upload twice; the first copy
// stores the object; the second copy gets 412, and only this answer reaches A; A reports that its
// file's name is taken, although the file is A's own.
func TestT05_UploadSentTwice(t *testing.T) {
	for name, open := range newStores {
		for _, body := range []string{"", "a segment", strings.Repeat("x", 3<<20), strings.Repeat("y", 8<<20)} {
			info, err := store.UploadNew(t.Context(), twice{open(t)}, "k", strings.NewReader(body), nil, nil)
			if err != nil || info.Size != int64(len(body)) {
				t.Errorf("%s, %d bytes: %+v, %v", name, len(body), info, err)
			}
		}
	}
}

// What is there is another's: of another size, or of the same one, as a clone of this machine may
// have made it.
//
// guard:upload-bytes. Without this check: A draws a name for a file, and A's machine is cloned; the
// clone uploads its own file under this name; A's file has other rows, but as many bytes; A's upload is
// refused, and A takes the clone's file for its own; A's edit is the first, so A's rows are lost.
func TestUploadNewInsists(t *testing.T) {
	long := strings.Repeat("x", 9<<20)
	for i, c := range []struct{ there, mine string }{{"another's", "mine"}, {"yours", "mines"}, {"", "mine"}, {"x", ""}, {long + "a", long + "b"}, {"another's", "mine"}, {"yours", "mines"}, {"", "mine"}, {"x", ""}} {
		st := newStores[[]string{"memory", "directory"}[i/5]](t)
		if _, err := st.Upload(t.Context(), "k", strings.NewReader(c.there), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := store.UploadNew(t.Context(), st, "k", strings.NewReader(c.mine), &store.UploadOptions{SizeHint: 4}, nil); !errors.Is(err, store.ErrPrecondition) {
			t.Errorf("%d bytes: %v, want a refusal", len(c.mine), err)
		}
		obj, err := st.Get(t.Context(), "k", nil)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(obj.Body); err != nil || string(b) != c.there {
			t.Errorf("%d bytes are there, %v", len(b), err)
		}
		_ = obj.Body.Close()
	}
}

// cut sends each upload twice, and then the caller goes.
type cut struct {
	twice
	cancel context.CancelCauseFunc
}

var errGone = errors.New("the caller goes")

func (s cut) Upload(ctx context.Context, key string, body io.Reader, opts *store.UploadOptions) (store.Info, error) {
	defer s.cancel(errGone)
	return s.twice.Upload(ctx, key, body, opts)
}

// Whoever ends between the refusal and the look at what is there is not told that
// the object is another's: that would be an alarm, and is not known.
func TestUploadNewCutShort(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := store.UploadNew(ctx, cut{twice{memstore.New(nil)}, cancel}, "k", strings.NewReader("mine"), nil, nil)
	if !errors.Is(err, store.ErrUnknown) || !errors.Is(err, errGone) || errors.Is(err, store.ErrPrecondition) {
		t.Errorf("%v, want unknown because the caller has gone", err)
	}
}

// swept sends each upload twice, and what was stored is removed before the answer.
type swept struct{ twice }

func (s swept) Upload(ctx context.Context, key string, body io.Reader, opts *store.UploadOptions) (store.Info, error) {
	info, err := s.twice.Upload(ctx, key, body, opts)
	return info, errors.Join(err, s.Delete(ctx, key))
}

func TestT05_UploadSentTwiceAndSwept(t *testing.T) {
	_, err := store.UploadNew(t.Context(), swept{twice{memstore.New(nil)}}, "k", strings.NewReader("mine"), nil, nil)
	if !errors.Is(err, store.ErrUnknown) || errors.Is(err, store.ErrPrecondition) || errors.Is(err, store.ErrNotFound) {
		t.Errorf("%v, want unknown", err)
	}
}
