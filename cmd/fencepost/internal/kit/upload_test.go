package kit

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// hung is a store to which no file is ever written, whatever the context says.
type hung struct {
	store.Store
	once        sync.Once
	begun, over chan struct{}
}

func (h *hung) hangs(key string) bool {
	if !strings.HasPrefix(key, inspect.File.Prefix()) {
		return false
	}
	h.once.Do(func() { close(h.begun) })
	<-h.over
	return true
}

func (h *hung) Put(ctx context.Context, key string, body []byte, o *store.PutOptions) (store.Info, error) {
	if h.hangs(key) {
		return store.Info{}, errors.New("over")
	}
	return h.Store.Put(ctx, key, body, o)
}

func (h *hung) Upload(ctx context.Context, key string, body io.Reader, o *store.UploadOptions) (store.Info, error) {
	if h.hangs(key) {
		return store.Info{}, errors.New("over")
	}
	return h.Store.Upload(ctx, key, body, o)
}

// An upload that hangs, as of a file on a disk that hangs, keeps nobody who is told to end, and who leads meanwhile.
func TestUploaderReturns(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x.parquet")
	f, err := os.Create(name)
	if err == nil {
		err = errors.Join(parquet.Write(f, []struct{ ID int }{{1}}), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	st := &hung{Store: memstore.New(nil), begun: make(chan struct{}), over: make(chan struct{})}
	defer close(st.over)
	w, err := writer.Open(t.Context(), st, fence.NewToken(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	k := &Kit{Patience: time.Hour, Console: NewConsole(io.Discard, false, 0)}
	ctx, end := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := k.Uploader(st, nil)(ctx, w, name, nil)
		done <- err
	}()
	select {
	case <-st.begun:
	case err := <-done:
		t.Fatal(err)
	}
	why := errors.New("told to end")
	end(why)
	if err := <-done; !errors.Is(err, why) {
		t.Error(err)
	}
}
