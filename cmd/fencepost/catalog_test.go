package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/ext/catalog"
	"github.com/fencepost/fencepost/store"
)

const (
	tableMetadata = `{"format-version":2,"table-uuid":"t","location":"s3://bucket/orders/file"}`
	tableKey      = "metadata/v1000000001.metadata.json"
)

// publishIceberg puts a version of an Iceberg table into the store at a URL.
func publishIceberg(t *testing.T, url, below string) {
	t.Helper()
	st, err := store.Open(t.Context(), url)
	if err == nil {
		_, err = st.Put(t.Context(), below+tableKey, []byte(tableMetadata), nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestCatalog(t *testing.T) {
	log, own, later := fileURL(t), fileURL(t), fileURL(t)
	newLog(t, log)
	newLog(t, later)
	publishIceberg(t, log, "file/")
	publishIceberg(t, own, "")
	_, errs, stop := background(t, nil, "catalog", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "sales.orders="+log, "hosts="+own, "later="+later)
	address := eventualAddress(t, errs, "serving at ")
	for path, want := range map[string]string{
		"/v1/config":                              `"endpoints":[`,
		"/v1/namespaces":                          `{"namespaces":[["default"],["sales"]]}`,
		"/v1/namespaces/default/tables":           `{"identifiers":[{"namespace":["default"],"name":"hosts"},{"namespace":["default"],"name":"later"}]}`,
		"/v1/namespaces/sales/tables/orders":      `{"metadata-location":"s3://bucket/orders/file/` + tableKey + `","config":{},"metadata":` + tableMetadata + `}`,
		"/v1/namespaces/default/tables/hosts":     tableMetadata,
		"/v1/namespaces/default/tables/later":     "NoSuchTableException",
		"/v1/namespaces/sales/tables/orders/plan": "NotFoundException",
	} {
		if _, body := get(t, address+path); !strings.Contains(body, want) {
			t.Errorf("%s: %s", path, body)
		}
	}
	if a, body := authorized(t, http.DefaultClient, address+"/v1/config", "", "evil.example"); a.StatusCode != http.StatusMisdirectedRequest { //nolint:bodyclose // authorized closes it
		t.Errorf("%d %s", a.StatusCode, body)
	}
	metrics := eventualAddress(t, errs, "metrics are at ")
	for path, want := range map[string]string{"/metrics": `fencepost_store_request_seconds_count{`, "/healthz": "ok", "/readyz": `"ready":true`} {
		if status, body := get(t, metrics+path); status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d %.300s", path, status, body)
		}
	}
	stop()
}

// eventualAddress returns the address that a line says.
func eventualAddress(t *testing.T, errs *buffer, before string) (address string) {
	t.Helper()
	eventually(t, before, func() bool {
		_, after, found := strings.Cut(errs.String(), before)
		address, _, _ = strings.Cut(strings.TrimSpace(after), "\n")
		address = strings.TrimSuffix(address, "/metrics")
		return found && address != ""
	})
	return address
}

func TestCatalogTLS(t *testing.T) {
	overTLS(t, "/v1/config", http.StatusOK, "catalog", "a="+newLog(t, memURL(t)))
}

func TestCatalogUsage(t *testing.T) {
	url, file := newLog(t, memURL(t)), writeFile(t, "token")
	for args, says := range map[string]string{
		"":                            "catalog takes",
		"--listen nowhere " + url:     "write an address of this machine",
		"--listen :0 " + url:          "on TCP anybody could see the tables: give --token-file FILE",
		"--listen 192.0.2.1:0 " + url: "give --token-file FILE",
		"--listen :0 --token-file " + file + " " + url:                          "in the clear",
		"--listen :0 --token-file " + file + " --tls-cert x --tls-key y " + url: "--host NAME",
		"--listen 127.0.0.1:0 a=" + url + " A=" + url:                           "two tables are called default.a",
		"--listen 127.0.0.1:0 a.b.c=" + url:                                     `"b.c" cannot name a table`,
		"--listen 127.0.0.1:0 ../x=" + url:                                      "cannot name a table",
		"--listen 127.0.0.1:0 " + url + " " + url:                               "as in sales.orders=URL",
		"--listen 127.0.0.1:0 --tls-key x a=" + url:                             "--tls-cert",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // what is not refused would serve for ever
		r := inProcess(ctx, strings.NewReader(""), append([]string{"catalog"}, strings.Fields(args)...)...)
		cancel()
		if r.status != 64 || !strings.Contains(r.err, says) {
			t.Errorf("%s: status %d: %s", args, r.status, r.err)
		}
	}
}

// An engine's rights are enough.
func TestPolicyCatalog(t *testing.T) {
	url := newLog(t, memURL(t))
	publishIceberg(t, url, "file/")
	st, err := store.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	p := newPoliced(t, st, "engine")
	s, err := catalog.New(&catalog.Options{Tables: []catalog.Table{{Namespace: "a", Name: "b", Store: p}}})
	if err != nil {
		t.Fatal(err)
	}
	a := httptest.NewRecorder()
	s.ServeHTTP(a, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/namespaces/a/tables/b", nil))
	if a.Code != http.StatusOK || len(p.denied) > 0 {
		t.Errorf("%d %s; denied %q", a.Code, a.Body, p.denied)
	}
}
