package catalog_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/ext/agent/door"
	"github.com/fencepost/fencepost/ext/catalog"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

func TestStoreFails(t *testing.T) {
	for name, c := range map[string]struct {
		fault faultstore.Fault
		want  string
	}{
		"unavailable": {faultstore.Fault{Drop: true, Err: faultstore.ErrUnavailable}, "503 ServiceUnavailableException"},
		"away":        {faultstore.Fault{Drop: true}, "503 ServiceUnavailableException"},
		"denied":      {faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}, "500 InternalServerError"},
	} {
		for _, kind := range []faultstore.Kind{faultstore.List, faultstore.Get} {
			w := newWorld(t)
			w.publish(1, 2)
			w.st.SetHook(faultstore.Script(faultstore.Rule{Kind: kind, Times: -1, Fault: c.fault}))
			a := call(w, "GET", orders)
			if got := version(w); !strings.HasPrefix(got, c.want) || (a.status == 503) != (a.header.Get("Retry-After") != "") {
				t.Errorf("%s, %s: %s %v", name, kind, got, a.header)
			}
			if a := call(w, "HEAD", orders); fmt.Sprint(a.status) != c.want[:3] {
				t.Errorf("%s, %s: HEAD has %d", name, kind, a.status)
			}
			w.st.SetHook(nil)
			if got := version(w); got != "2" {
				t.Errorf("%s, %s: afterwards %s", name, kind, got)
			}
		}
	}
	// A client that leaves ends the wait.
	w := newWorld(t)
	w.publish(1, 2)
	w.st.SetHook(func(faultstore.Op) faultstore.Fault { return faultstore.Fault{Hang: true} })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a := httptest.NewRecorder()
	w.ServeHTTP(a, httptest.NewRequestWithContext(ctx, "GET", orders, nil))
	if a.Code != 503 {
		t.Errorf("%d", a.Code)
	}
}

func TestBadMetadata(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"empty":       {"", "unexpected end"},
		"cut":         {metadata(2, "t1")[:50], "is not the metadata of a table"},
		"no object":   {`[1]`, "is not the metadata of a table"},
		"no uuid":     {`{"location":"s3://b/t"}`, "no table-uuid"},
		"no location": {`{"table-uuid":"x"}`, "no location"},
		"no URL":      {`{"table-uuid":"x","location":"/etc"}`, "no location"},
		"deep":        {`{"a":` + strings.Repeat("[", 100_000), "is not the metadata of a table"},
		"too large":   {strings.Repeat(" ", 64<<20) + "{}", "at most 67108864 are served"},
	} {
		w := newWorld(t)
		w.publish(1, 1)
		w.put(key(2), c.body)
		if got := version(w); !strings.HasPrefix(got, "500 InternalServerError") || !strings.Contains(got, c.want) || len(got) > 2000 {
			t.Errorf("%s: %.3000s", name, got)
		}
	}
	w := newWorld(t)
	for _, snapshots := range []string{`{}`, `[1]`, `[{"snapshot-id":"x"}]`} {
		w.put(key(1), `{"table-uuid":"x","location":"s3://b/t","snapshots":`+snapshots+`}`)
		if a := call(w, "GET", orders+"?snapshots=refs"); a.status != 500 {
			t.Errorf("%s: %d %s", snapshots, a.status, a.body)
		}
	}
	w.put(key(1), `{"table-uuid":"x","location":"s3://b/t"}`)
	if a := call(w, "GET", orders+"?snapshots=refs"); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// No name leads to another object, and no answer is larger than what was asked for deserves.
func TestHostileNames(t *testing.T) {
	w := newWorld(t)
	w.publish(1, 1)
	w.put("secret", metadata(1, "t1"))
	for _, name := range []string{"..", ".", "%2E%2E", "..%2F..%2Fsecret", "orders%2F", "orders%2Fmetadata", "%00", "orders%00", "ORDERS", "%1F", "sales%1Forders", "%FF", "%22%7D", "orders.", strings.Repeat("a", 1<<20), ""} {
		for _, path := range []string{"/v1/namespaces/" + name, "/v1/namespaces/sales/tables/" + name, "/v1/namespaces/" + name + "/tables/orders", "/v1/namespaces/sales/views/" + name, "/v1/" + name + "/secret", "/" + name} {
			a := call(w, "GET", path)
			if a.status != 404 || len(a.body) > 2000 || !json.Valid([]byte(a.body)) {
				t.Errorf("%.100s: %d %.300s", path, a.status, a.body)
			}
		}
		if a := call(w, "GET", "/v1/namespaces?pageToken="+name+"&parent="+name); a.status != 404 && a.status != 200 {
			t.Errorf("%.100s: %d", name, a.status)
		}
	}
	for path, want := range map[string]int{orders + "/": 404, "/v1/namespaces/": 404, "//v1/config": 404, "/v1//config": 404, "/v1/a/b/namespaces": 404, "/v1/namespaces/../../secret": 404} {
		if a := call(w, "GET", path); a.status != want {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if got := w.asked(); got != "" {
		t.Errorf("the store was asked: %s", got)
	}
}

func TestDoor(t *testing.T) {
	w := newWorld(t)
	w.publish(1, 1)
	token := "one"
	s := w.replica(&catalog.Options{Door: door.Door{Hosts: []string{"example.com"}, Token: func() (string, error) { return token, nil }}})
	for _, path := range []string{"/v1/config", orders, "/", orders + "/metrics"} {
		if a := call(s, "GET", path); a.status != 401 || !strings.Contains(a.body, `"NotAuthorizedException"`) || a.header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if a := call(s, "GET", orders, "Authorization", "Bearer one"); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	token = "two"
	if a, b := call(s, "GET", orders, "Authorization", "Bearer one"), call(s, "GET", orders, "Authorization", "Bearer two"); a.status != 401 || b.status != 200 {
		t.Errorf("%d %d", a.status, b.status)
	}
	if a := call(s, "GET", "http://evil.example/v1/config", "Authorization", "Bearer two"); a.status != 421 || !strings.Contains(a.body, "--host") {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// Requests beyond the bound wait, and all are served.
func TestManyAtOnce(t *testing.T) {
	w := newWorld(t)
	w.publish(1, 1)
	var all sync.WaitGroup
	for range 250 {
		all.Go(func() {
			if got := version(w); got != "1" {
				t.Errorf("got %s", got)
			}
		})
	}
	all.Wait()
}

func TestOptions(t *testing.T) {
	st := memstore.New(nil)
	table := func(namespace, name string) catalog.Table {
		return catalog.Table{Namespace: namespace, Name: name, Store: st}
	}
	for _, c := range []struct {
		o    *catalog.Options
		want string
	}{
		{nil, "no Tables"},
		{&catalog.Options{}, "no Tables"},
		{&catalog.Options{Tables: []catalog.Table{table("a", "b"), table("A", "B")}}, "two tables are called a.b, but for case: give one another name, as in sales.orders=URL"},
		{&catalog.Options{Tables: []catalog.Table{table("a", "b.c")}}, `"b.c" cannot name a table`},
		{&catalog.Options{Tables: []catalog.Table{table("", "b")}}, `"" cannot name a table`},
		{&catalog.Options{Tables: []catalog.Table{table("a/b", strings.Repeat("x", 129))}}, `"a/b" cannot name a table`},
		{&catalog.Options{Tables: []catalog.Table{{Namespace: "a", Name: "b"}}}, "the Store of the table a.b is nil"},
	} {
		if _, err := catalog.New(c.o); !errors.Is(err, catalog.ErrOptions) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}
