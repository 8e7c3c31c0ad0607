package catalog_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/ext/catalog"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// world is a store with a log whose table is published, and a catalog of it.
type world struct {
	*catalog.Server
	t   *testing.T
	mem *memstore.Store
	st  *faultstore.Store

	mu       sync.Mutex
	requests []string
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, mem: memstore.New(nil)}
	w.st = faultstore.New(w.mem, &faultstore.Options{Before: func(_ context.Context, op faultstore.Op) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.requests = append(w.requests, string(op.Kind)+" "+op.Key)
	}})
	w.Server = w.replica(nil)
	return w
}

// replica returns another catalog of the same store.
func (w *world) replica(o *catalog.Options) *catalog.Server {
	w.t.Helper()
	if o == nil {
		o = &catalog.Options{}
	}
	o.Settle = logtest.Quick
	if o.Tables == nil {
		o.Tables = []catalog.Table{{Namespace: "sales", Name: "orders", Store: w.st}, {Namespace: "sales", Name: "later", Store: memstore.New(nil)}, {Namespace: "ops", Name: "hosts", Store: w.st}}
	}
	s, err := catalog.New(o)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// asked returns the requests to the store since it was called last.
func (w *world) asked() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() { w.requests = nil }()
	return strings.Join(w.requests, ", ")
}

const base = 1_000_000_000

func key(n int) string { return fmt.Sprintf("file/metadata/v%d.metadata.json", base+n) }

// metadata is that of version n of a table.
func metadata(n int, uuid string) string {
	return fmt.Sprintf(`{"fencepost-proof":"00","format-version":2,"table-uuid":%q,"location":"s3://bucket/orders/file","last-updated-ms":%d,
"current-snapshot-id":%d,"refs":{"main":{"snapshot-id":%d,"type":"branch"},"old":{"snapshot-id":1,"type":"tag"}},
"snapshots":[{"snapshot-id":1},{"snapshot-id":9007199254740993},{"snapshot-id":%d}],"properties":{"a":"<&>"}}`+"\n", uuid, n, n, n, n)
}

func (w *world) put(key, body string) {
	w.t.Helper()
	if _, err := w.mem.Put(context.Background(), key, []byte(body), nil); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) delete(keys ...string) {
	w.t.Helper()
	if err := w.mem.Delete(context.Background(), keys...); err != nil {
		w.t.Fatal(err)
	}
}

// publish creates versions from one number to another.
func (w *world) publish(from, to int) {
	for n := from; n <= to; n++ {
		w.put(key(n), metadata(n, "t1"))
	}
}

func (w *world) hint(n int) { w.put("file/metadata/version-hint.text", fmt.Sprint(base+n)) }

// answer is that of a catalog.
type answer struct {
	status int
	header http.Header
	body   string
}

func call(h http.Handler, method, path string, headers ...string) answer {
	r := httptest.NewRequest(method, path, strings.NewReader("{}"))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	a := httptest.NewRecorder()
	h.ServeHTTP(a, r)
	return answer{a.Code, a.Header(), a.Body.String()}
}

const orders = "/v1/namespaces/sales/tables/orders"

// version asks for the table, and returns the number of its version, or what is wrong.
func version(h http.Handler) string {
	a := call(h, http.MethodGet, orders)
	var got struct {
		Location string `json:"metadata-location"`
		Error    struct {
			Type, Message string
			Code          int
		}
	}
	if err := json.Unmarshal([]byte(a.body), &got); err != nil {
		return err.Error()
	}
	if a.status != http.StatusOK {
		return fmt.Sprintf("%d %s %s", got.Error.Code, got.Error.Type, got.Error.Message)
	}
	var n int
	if _, err := fmt.Sscanf(got.Location, "s3://bucket/orders/file/metadata/v%d.metadata.json", &n); err != nil {
		return got.Location
	}
	return fmt.Sprint(n - base)
}

func TestEndpoints(t *testing.T) {
	w := newWorld(t)
	w.publish(1, 1)
	for _, c := range []struct {
		method, path string
		status       int
		says         string
	}{
		{"GET", "/v1/config?warehouse=any", 200, `"defaults":{}`},
		{"GET", "/v1/config", 200, `"GET /v1/{prefix}/namespaces/{namespace}/tables/{table}"`},
		{"GET", "/v1/namespaces", 200, `{"namespaces":[["ops"],["sales"]]}`},
		{"GET", "/v1/any%20prefix/namespaces", 200, `{"namespaces":[["ops"],["sales"]]}`},
		{"GET", "/v1/namespaces?parent=", 200, `{"namespaces":[["ops"],["sales"]]}`},
		{"GET", "/v1/namespaces?parent=sales", 200, `{"namespaces":[]}`},
		{"GET", "/v1/namespaces?parent=x", 404, `"NoSuchNamespaceException"`},
		{"GET", "/v1/namespaces?pageToken=&pageSize=1", 200, `{"namespaces":[["ops"]],"next-page-token":"ops"}`},
		{"GET", "/v1/namespaces?pageToken=ops&pageSize=1", 200, `{"namespaces":[["sales"]]}`},
		{"GET", "/v1/namespaces?pageToken=&pageSize=0", 400, `"BadRequestException"`},
		{"GET", "/v1/namespaces?pageToken=&pageSize=x", 400, `pageSize is`},
		{"GET", "/v1/namespaces/sales", 200, `{"namespace":["sales"],"properties":{}}`},
		{"GET", "/v1/namespaces/x", 404, `{"error":{"code":404,"type":"NoSuchNamespaceException","message":"there is no namespace \"x\" here`},
		{"HEAD", "/v1/namespaces/sales", 204, ""},
		{"HEAD", "/v1/namespaces/x", 404, ""},
		{"GET", "/v1/namespaces/sales/tables", 200, `{"identifiers":[{"namespace":["sales"],"name":"later"},{"namespace":["sales"],"name":"orders"}]}`},
		{"GET", "/v1/p/namespaces/sales/tables?pageToken=later&pageSize=5", 200, `{"identifiers":[{"namespace":["sales"],"name":"orders"}]}`},
		{"GET", "/v1/namespaces/x/tables", 404, `"NoSuchNamespaceException"`},
		{"GET", orders, 200, `"metadata-location":"s3://bucket/orders/file/metadata/v1000000001.metadata.json"`},
		{"GET", "/v1/p/namespaces/sales/tables/orders", 200, `"config":{}`},
		{"GET", orders + "?snapshots=x", 400, `must be all or refs`},
		{"HEAD", orders, 204, ""},
		{"GET", "/v1/namespaces/sales/tables/x", 404, `"NoSuchTableException"`},
		{"GET", "/v1/namespaces/x/tables/orders", 404, `"NoSuchNamespaceException"`},
		{"GET", "/v1/namespaces/sales/tables/later", 404, `when its log is published`},
		{"HEAD", "/v1/namespaces/sales/tables/later", 404, ""},
		{"GET", "/v1/namespaces/sales/views", 200, `{"identifiers":[]}`},
		{"GET", "/v1/namespaces/sales/views/v", 404, `"NoSuchViewException"`},
		{"HEAD", "/v1/namespaces/sales/views/v", 404, ""},
		{"POST", orders + "/metrics", 204, ""},
		{"POST", "/v1/namespaces/sales/tables/x/metrics", 404, `"NoSuchTableException"`},
		{"GET", "/", 404, `"NotFoundException"`},
		{"GET", "/v2/config", 404, `"NotFoundException"`},
		{"GET", "/v1/tables", 404, `"NotFoundException"`},
		{"GET", orders + "/plan", 404, `"NotFoundException"`},
	} {
		a := call(w, c.method, c.path)
		if a.status != c.status || !strings.Contains(a.body, c.says) || a.body == "" && c.status == 200 {
			t.Errorf("%s %s: %d %s", c.method, c.path, a.status, a.body)
		}
	}
}

// guard:catalog-reads. Without this check: an engine commits, is answered with 200, and believes that its rows are in the table.
func TestCommitsAreRefused(t *testing.T) {
	w := newWorld(t)
	w.publish(1, 1)
	for _, c := range []string{
		"POST /v1/namespaces", "DELETE /v1/namespaces/sales", "POST /v1/namespaces/sales/properties", "POST /v1/namespaces/sales/tables", "POST /v1/namespaces/sales/register",
		"POST " + orders, "DELETE " + orders, "PUT " + orders, "PATCH " + orders, "POST /v1/p/namespaces/sales/tables/orders", "POST /v1/tables/rename", "POST /v1/p/tables/rename",
		"POST /v1/transactions/commit", "POST /v1/namespaces/sales/views", "POST /v1/views/rename", "DELETE /v1/namespaces/sales/views/v", "POST " + orders + "/plan", "DELETE " + orders + "/metrics",
	} {
		method, path, _ := strings.Cut(c, " ")
		if a := call(w, method, path); a.status != 403 || !strings.Contains(a.body, `"ForbiddenException","message":"only the publisher of the log writes`) {
			t.Errorf("%s: %d %s", c, a.status, a.body)
		}
	}
	if a := call(w, "POST", "/v1/oauth/tokens"); a.status != 403 || !strings.Contains(a.body, "as the property token") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if got := w.asked(); got != "" {
		t.Errorf("the store was asked: %s", got)
	}
}

// The metadata are served as they are, and an engine that has them gets no more.
func TestLoad(t *testing.T) {
	w := newWorld(t)
	w.publish(1, 3)
	a := call(w, "GET", orders)
	if want := `{"metadata-location":"s3://bucket/orders/file/` + key(3)[5:] + `","config":{},"metadata":` + metadata(3, "t1") + "}"; a.body != want || a.header.Get("Content-Length") != fmt.Sprint(len(want)) {
		t.Errorf("%s, want %s", a.body, want)
	}
	refs := call(w, "GET", orders+"?snapshots=refs")
	var got struct {
		Metadata struct {
			Snapshots []struct {
				ID int64 `json:"snapshot-id"`
			}
		}
	}
	if err := json.Unmarshal([]byte(refs.body), &got); err != nil || fmt.Sprint(got.Metadata.Snapshots) != "[{1} {3}]" {
		t.Errorf("%v %s", err, refs.body)
	}
	tag := a.header.Get("ETag")
	if tag == "" || tag == refs.header.Get("ETag") || tag != call(w.replica(nil), "GET", orders).header.Get("ETag") {
		t.Errorf("tags %q and %q", tag, refs.header.Get("ETag"))
	}
	w.asked()
	for _, sent := range []string{tag, `"x", W/` + tag} {
		if a := call(w, "GET", orders, "If-None-Match", sent); a.status != 304 || a.body != "" || a.header.Get("ETag") != tag {
			t.Errorf("%s: %d %s", sent, a.status, a.body)
		}
	}
	if got := w.asked(); got != "list file/metadata/, list file/metadata/" {
		t.Errorf("the store was asked: %s", got)
	}
	w.publish(4, 4)
	if a := call(w, "GET", orders, "If-None-Match", tag); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// guard:catalog-hint. Without this check: a client gets version 9 from one server; the object is lost; another server is started,
// and gives the client version 8.
//
// Otherwise the hint is where a listing begins.
func TestHint(t *testing.T) {
	for name, c := range map[string]struct {
		hint string
		want string
	}{
		"missing":               {"", "12"},
		"right":                 {fmt.Sprint(base + 12), "12"},
		"old, and expired":      {fmt.Sprint(base + 2), "12"},
		"old":                   {fmt.Sprint(base + 10), "12"},
		"with a line feed":      {fmt.Sprint(base+11) + "\n", "12"},
		"of no version":         {fmt.Sprint(base), "12"},
		"junk":                  {"\x00{\"a\":", "12"},
		"negative":              {"-3", "12"},
		"of other writers":      {"7", "12"},
		"huge":                  {strings.Repeat("1", 1<<20), "12"},
		"beyond all numbers":    {"99999999999999999999999", "12"},
		"of what was never, up": {fmt.Sprint(base + 13), "500 InternalServerError the table sales.orders: metadata/version-hint.text names version 1000000013, which is gone, and no newer one is there: restore metadata/v1000000013.metadata.json from a backup, or publish to a new place"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.publish(8, 12)
			for _, junk := range []string{"v2.metadata.json", "v1000000013.metadata.json.tmp", "v01000000013.metadata.json", "v2999999999.metadata.json", "v1000000013.gz.metadata.json", "v10000000130.metadata.json", "vx", "0000000012-list.avro", "v+100000013.metadata.json"} {
				w.put("file/metadata/"+junk, "junk")
			}
			if c.hint != "" {
				w.put("file/metadata/version-hint.text", c.hint)
			}
			for range 2 {
				if got := version(w); got != c.want {
					t.Errorf("got %s, want %s", got, c.want)
				}
			}
		})
	}
	w := newWorld(t)
	w.put("file/metadata/version-hint.text", fmt.Sprint(base+1))
	if got := version(w); !strings.Contains(got, "which is gone") {
		t.Errorf("only a hint: %s", got)
	}
}

// A load takes a listing and a read, and the first one of a server two more.
func TestRequests(t *testing.T) {
	w := newWorld(t)
	w.publish(1, 30)
	w.hint(29)
	const once = "list file/metadata/, get file/metadata/v10000000"
	if version(w); w.asked() != "list file/metadata/, get file/metadata/version-hint.text, "+once+"30.metadata.json" {
		t.Error("the first load takes other requests")
	}
	w.publish(31, 31)
	if version(w); w.asked() != once+"31.metadata.json" {
		t.Error("a load takes other requests")
	}
}

// Old versions are deleted while a server is idle, in any order.
func TestExpired(t *testing.T) {
	w := newWorld(t)
	w.publish(1, 3)
	if got := version(w); got != "3" {
		t.Fatal(got)
	}
	w.publish(4, 9)
	w.delete(key(1), key(2), key(4), key(5)) // 3 is still there
	if got := version(w); got != "9" {
		t.Errorf("got %s", got)
	}
	w.publish(10, 12)
	w.delete(key(3), key(6), key(7), key(8), key(9), key(10), key(11))
	if got := version(w); got != "12" {
		t.Errorf("got %s", got)
	}
}

// guard:catalog-rises. Without this check: a client has version 3; it is lost from the store; the client asks again, and gets
// version 2.
func TestNeverBack(t *testing.T) {
	w := newWorld(t)
	w.publish(1, 3)
	version(w)
	tag := call(w, "GET", orders).header.Get("ETag")
	w.delete(key(3))
	if got := version(w); !strings.Contains(got, "this server has served version 1000000003, which is gone") {
		t.Errorf("got %s", got)
	}
	w.publish(3, 3)
	if got := version(w); got != "3" {
		t.Errorf("restored: %s", got)
	}
	if a := call(w, "GET", orders, "If-None-Match", tag); a.status != 200 && a.status != 304 {
		t.Errorf("%d", a.status)
	}
	// Another table in the same place begins anew.
	w.delete(key(1), key(2), key(3))
	if got := version(w); !strings.HasPrefix(got, "404 NoSuchTableException") {
		t.Errorf("got %s", got)
	}
	for n := range 2 {
		w.put(key(n+1), metadata(n+1, "t2"))
		if got := version(w); got != fmt.Sprint(n+1) {
			t.Errorf("got %s, want %d", got, n+1)
		}
	}
}

// A publisher creates versions and deletes old ones while clients ask one server after the other.
func TestVersionsRise(t *testing.T) {
	w := newWorld(t)
	w.publish(1, 1)
	servers := []http.Handler{w, w.replica(nil), w.replica(nil)}
	const last = 300
	var all sync.WaitGroup
	all.Go(func() {
		for n := 2; n <= last; n++ {
			w.publish(n, n)
			if n%3 == 0 {
				w.hint(n - 1)
			}
			if n > 5 {
				w.delete(key(n - 5))
			}
		}
	})
	for c := range 4 {
		all.Go(func() {
			before := 0
			for i := 0; before < last; i++ {
				got, n := version(servers[(i+c)%len(servers)]), 0
				if strings.Contains(got, "has changed since it was listed") {
					continue // the publisher here deletes within microseconds
				}
				if _, err := fmt.Sscan(got, &n); err != nil || n < before {
					t.Errorf("after version %d came %s", before, got)
					return
				}
				before = n
			}
		})
	}
	all.Wait()
}

// A version that is created while a request is under way may be in its answer. One that another server showed before must be.
func TestListsAfterTheRequest(t *testing.T) {
	w := newWorld(t)
	w.publish(1, 1)
	version(w)
	release := make(chan struct{})
	begun := make(chan struct{}, 10)
	held := faultstore.Script(faultstore.Rule{Kind: faultstore.List, Fault: faultstore.Fault{HoldReply: release}})
	w.st.SetHook(func(op faultstore.Op) faultstore.Fault {
		defer func() { begun <- struct{}{} }()
		return held(op)
	})
	first := make(chan string)
	go func() { first <- version(w) }()
	<-begun
	w.publish(2, 2)
	if got := version(w); got != "2" { // while the first listing is still under way
		t.Errorf("got %s", got)
	}
	close(release)
	if got := <-first; got != "1" && got != "2" {
		t.Errorf("the first: %s", got)
	}
	if got := version(w); got != "2" {
		t.Errorf("afterwards: %s", got)
	}
}

// The object is replaced, or deleted, between the listing and the read.
func TestChangedMeanwhile(t *testing.T) {
	w := newWorld(t)
	w.publish(1, 2)
	done := w.st.BeforeFirst(func(op faultstore.Op) bool { return op.Key == key(2) }, func(context.Context) {
		w.publish(3, 3)
		w.delete(key(2))
	})
	if got := version(w); got != "3" || !done() {
		t.Errorf("got %s", got)
	}
	w.st.SetBefore(func(_ context.Context, op faultstore.Op) {
		if op.Kind == faultstore.Get {
			w.put(key(3), metadata(3, "t1")+" ")
		}
	})
	if got := version(w); got != "3" && !strings.Contains(got, "503 ServiceUnavailableException catalog: the object has changed") {
		t.Errorf("got %s", got)
	}
}

// The table is beside the files of its log, or in a store of its own. Rights to see the rest of the log are not needed.
func TestPlaces(t *testing.T) {
	w := newWorld(t)
	w.st.SetHook(func(op faultstore.Op) faultstore.Fault {
		if strings.HasPrefix(op.Key, "file/") {
			return faultstore.Fault{}
		}
		return faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}
	})
	if got := version(w); !strings.HasPrefix(got, "404 NoSuchTableException") {
		t.Errorf("got %s", got)
	}
	w.publish(1, 1)
	if got := version(w); got != "1" {
		t.Errorf("got %s", got)
	}
	own := memstore.New(nil)
	s := w.replica(&catalog.Options{Tables: []catalog.Table{{Namespace: "sales", Name: "orders", Store: own}}})
	if got := version(s); !strings.HasPrefix(got, "404") {
		t.Errorf("got %s", got)
	}
	body := strings.Replace(metadata(1, "t1"), "s3://bucket/orders/file", "s3://bucket/orders/file/", 1)
	if _, err := own.Put(t.Context(), key(1)[5:], []byte(body), nil); err != nil {
		t.Fatal(err)
	}
	if got := version(s); got != "1" {
		t.Errorf("got %s", got)
	}
}
