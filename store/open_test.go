package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

var runs atomic.Int64

func TestOpen(t *testing.T) {
	var opened *url.URL
	mine := memstore.New(nil)
	scheme := fmt.Sprintf("opentest%d", runs.Add(1)) // -count runs it again
	store.Register(scheme, func(_ context.Context, u *url.URL) (store.Store, error) {
		opened = u
		if u.Host == "broken" {
			return nil, io.ErrUnexpectedEOF
		}
		if u.Host == "part" {
			return store.Sub(mine, u.Path)
		}
		return mine, nil
	})
	st, err := store.Open(t.Context(), strings.ToUpper(scheme)+"://bucket/prefix?region=x")
	if err != nil || st != store.Store(mine) || opened.Host != "bucket" || opened.Path != "/prefix" || opened.Query().Get("region") != "x" {
		t.Errorf("%v, %v, opened %v", st, err, opened)
	}
	if _, err := store.Open(t.Context(), scheme+"://broken"); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the driver's error is lost: %v", err)
	}
	if _, err := store.Open(t.Context(), scheme+"://part/a//b?key=secret"); err == nil || !strings.Contains(err.Error(), `"`+scheme+`://part/a//b?…"`) {
		t.Errorf("an error about the path names another thing than the URL: %v", err)
	}
	defer func() {
		if r := recover(); r == nil || !strings.Contains(r.(string), scheme) {
			t.Errorf("a scheme registered twice: %v", r)
		}
	}()
	store.Register(scheme, nil)
}

// Every bad URL gets an error that says what to do, and no secret.
func TestOpenBadURL(t *testing.T) {
	for raw, want := range map[string]string{
		"":                                    "has no scheme; write s3://",
		"/var/data":                           "file:///dir",
		"bucket":                              "has no scheme",
		"gs://bucket":                         `import _ "github.com/fencepost/fencepost/store/gcsstore"`,
		"az://bucket":                         `import _ "github.com/fencepost/fencepost/store/azurestore"`,
		"ftp://host":                          "no driver for ftp://; this program knows ",
		"ftp://user:secret@host/x":            "no driver for ftp://",
		"ftp://user:sec/ret@host/x":           "not a URL",
		"s4://key:secret@b/p":                 "importing its package",
		"://secret@":                          "not a URL",
		"s3://user:sec%zzret@bucket":          "not a URL",
		"user:secret@host":                    "no driver for user://",
		"nope://b?endpoint=http://u:secret@h": "no driver",
		"nope://b?secret_access_key=secret":   "no driver",
		"nope://b#secret":                     "no driver",
		"s3://b ucket\x7f?key=secret":         "not a URL",
		"ftp://user:secret@[::1]:namedport/x": "not a URL",
	} {
		_, err := store.Open(t.Context(), raw)
		var e *store.Error
		if !errors.Is(err, store.ErrInvalid) || !errors.As(err, &e) || e.Op != "open" || !strings.Contains(e.Hint, want) {
			t.Errorf("%q: %v\nwant %q in it", raw, err, want)
			continue
		}
		for _, part := range []string{"secret", "sec/ret", "sec%zzret", "ret@"} {
			if strings.Contains(err.Error(), part) {
				t.Errorf("%q: the secret is in: %v", raw, err)
			}
		}
	}
}
