package store_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

// All faults of options are told at once, by Validate and by every function that takes
// them, before any request.
func TestSettleOptions(t *testing.T) {
	var none *store.SettleOptions
	if err := errors.Join(none.Validate(), (&store.SettleOptions{}).Validate()); err != nil {
		t.Error(err)
	}
	ctx, st := t.Context(), memstore.New(nil)
	bad := &store.SettleOptions{Attempt: -1, Backoff: -1, MaxBackoff: -1, Reads: -1}
	var list error
	for _, err := range store.ListAll(ctx, st, "", nil, bad) {
		list = err
	}
	_, create := store.Create(ctx, st, "k", []byte("x"), &store.WriteOptions{Settle: bad})
	_, _, read := store.Read(ctx, st, "k", &store.ReadOptions{Limit: 1, Settle: bad})
	for name, err := range map[string]error{
		"Validate": bad.Validate(), "Create": create, "Read": read, "ListAll": list, "DeleteAll": store.DeleteAll(ctx, st, []string{"k"}, bad),
		"Retry": store.Retry(ctx, bad, func(context.Context) error { t.Error("it was called"); return nil }),
	} {
		if !errors.Is(err, store.ErrInvalid) || strings.Count(err.Error(), "negative") != 4 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAge(t *testing.T) {
	at := time.Unix(1000, 0)
	if age, known := (store.Info{LastModified: at, Date: at.Add(time.Minute)}).Age(); age != time.Minute || !known {
		t.Errorf("%v, %v", age, known)
	}
	for _, info := range []store.Info{{}, {LastModified: at}, {Date: at}} {
		if _, known := info.Age(); known {
			t.Errorf("%+v has an age", info)
		}
	}
}

func TestWhere(t *testing.T) {
	if w := (store.Traits{Name: "s3://b", Endpoint: "http://127.0.0.1:9"}).Where(); w != "s3://b at http://127.0.0.1:9" {
		t.Error(w)
	}
}
