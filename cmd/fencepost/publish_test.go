package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	publishverb "github.com/fencepost/fencepost/cmd/fencepost/internal/verb/publish"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

// commitParquet adds a Parquet file to the log's table.
func commitParquet(t *testing.T, url string, epoch fence.Epoch) {
	t.Helper()
	st, err := store.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	w, err := writer.Open(t.Context(), st, fence.NewToken(epoch), nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := w.CreateFile(t.Context(), ".parquet", 0)
	if err == nil {
		rows := parquet.NewGenericWriter[struct{ ID int64 }](f)
		if _, err = rows.Write([]struct{ ID int64 }{{1}, {2}}); err == nil {
			err = rows.Close()
		}
	}
	if err == nil {
		err = f.Close()
	}
	if err == nil {
		err = w.CommitFiles(t.Context(), manifest.Edit{Add: []manifest.File{f.File()}})
	}
	if err == nil {
		err = w.Close(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestPublishAnotherLog: a log was deleted but for its files, and another one is created there.
func TestPublishAnotherLog(t *testing.T) {
	dir := t.TempDir() + "/log"
	url := "file://" + dir
	must(t, "", "init", url)
	commitParquet(t, url, 1)
	must(t, "", "publish", url)
	var old publishverb.PublishedDoc
	if err := json.Unmarshal([]byte(must(t, "", "published", "--json", url)), &old); err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if e.Name() != "file" {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	must(t, "", "init", url)
	commitParquet(t, url, 1)
	for _, verb := range []string{"publish", "published"} {
		r := run(t, "", verb, url)
		if r.status != 1 || !strings.Contains(r.err, old.Log) || !strings.Contains(r.err, "create this log at a new place") || !strings.Contains(r.out, "other log    "+old.Log) {
			t.Errorf("%s: %+v", verb, r)
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, "file", "_delta_log")); err != nil {
		t.Fatal(err)
	}
	if got := must(t, "", "publish", url); !strings.Contains(got, "version    1, with 1 files") {
		t.Error(got)
	}
}

// TestPublishWatchJSON: each version that is published is a line.
func TestPublishWatchJSON(t *testing.T) {
	url := "file://" + t.TempDir() + "/log"
	must(t, "", "init", url)
	ctx, cancel := context.WithCancelCause(t.Context())
	var out, errs buffer
	a := &kit.Kit{In: strings.NewReader(""), Out: &out, Err: &errs, Open: store.Open}
	ended := make(chan int)
	go func() { ended <- runWith(ctx, a, []string{"publish", "--watch", "--json", "--every", "10ms", url}) }()
	for n := 1; n <= 2; n++ {
		commitParquet(t, url, fence.Epoch(n))
		eventually(t, "a line", func() bool { return strings.Count(out.String(), "\n") == n })
		var d publishverb.PublishedDoc
		lines := strings.Split(out.String(), "\n")
		if err := json.Unmarshal([]byte(lines[n-1]), &d); err != nil || d.Version != int64(n) || d.Published != uint64(n) {
			t.Errorf("%+v, %v", d, err)
		}
	}
	cancel(&kit.InterruptedError{Signal: syscall.SIGTERM})
	if got := <-ended; got != 143 {
		t.Errorf("status %d: %s", got, &errs)
	}
}

func TestPublish(t *testing.T) {
	dir := t.TempDir() + "/log"
	url := "file://" + dir
	must(t, "", "init", url)
	if got := must(t, "", "publish", url); !strings.Contains(got, "no edits yet") {
		t.Error(got)
	}
	if r := run(t, "", "published", url); r.status != 1 || !strings.Contains(r.err, "there is no Delta table") {
		t.Errorf("%+v", r)
	}
	commitParquet(t, url, 1)
	if got, want := must(t, "", "publish", "--name", "orders", url), "version    1, with 1 files\npublished  1 of 1 edits; 0 behind\nholds      version 2 of the manifest\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	commitParquet(t, url, 2)
	var d publishverb.PublishedDoc
	if err := json.Unmarshal([]byte(must(t, "", "published", "--json", url)), &d); err != nil || d.Version != 1 || d.Behind != 1 || d.Edits != 2 {
		t.Errorf("%+v, %v", d, err)
	}
	must(t, "", "publish", url, url+"/file")
	if got := must(t, "", "pins", url); !strings.Contains(got, "delta/") {
		t.Errorf("pins are %q", got)
	}
	if got := must(t, "", "verify", url); strings.Contains(got, "_delta_log") {
		t.Errorf("verify says %q", got)
	}
	stray := filepath.Join(dir, "file", "part-00000-foreign.parquet")
	if err := os.WriteFile(stray, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := must(t, "", "published", url); !strings.Contains(got, "foreign    part-00000-foreign.parquet: no log writes") {
		t.Error(got)
	}
	if got := must(t, "", "unpublish", url); got != "unpublished; the last version is 3\n" {
		t.Error(got)
	}
	if got := must(t, "", "pins", url); strings.Contains(got, "delta/") {
		t.Errorf("pins are %q", got)
	}
	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"publish", url}, 1, "unpublished"},
		{[]string{"publish", url, url + "/table"}, 64, "leave out TABLE"},
		{[]string{"publish", "--every", "1s", url}, 64, "goes with --watch"},
		{[]string{"publish", "--partition", "a b", url}, 64, "cannot be called"},
	} {
		if r := run(t, "", c.args...); r.status != c.status || !strings.Contains(r.err, c.says) {
			t.Errorf("%q: status %d, %s; want %d and %q", c.args, r.status, r.err, c.status, c.says)
		}
	}
}

// TestIcebergLocation: the table says where it is without escapes, since engines take its paths as they are.
func TestIcebergLocation(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{"my%20lake%2B": "file://" + dir + "/my lake+/file", "/twice/": "file://" + dir + "/twice/file", "no%23": "", "no%3F": ""} {
		url := "file://" + dir + "/" + path
		must(t, "", "init", url)
		commitParquet(t, url, 1)
		if r := run(t, "", "publish", "--format", "iceberg", url); (r.status == 0) != (want != "") || want == "" && !strings.Contains(r.err, "# or ?") {
			t.Errorf("%s: %+v", url, r)
		}
		if want == "" {
			continue
		}
		root := strings.TrimPrefix(want, "file://")
		body, err := os.ReadFile(filepath.Join(root, "metadata", "v1000000002.metadata.json"))
		if err != nil || !strings.Contains(string(body), `"location":"`+want+`"`) {
			t.Errorf("%.300s, %v", body, err)
		}
	}
}

// TestPublishIceberg: one log becomes a table in two formats.
func TestPublishIceberg(t *testing.T) {
	dir := t.TempDir() + "/log"
	url := "file://" + dir
	must(t, "", "init", url)
	commitParquet(t, url, 1)
	want := "format     delta\nversion    1, with 1 files\npublished  1 of 1 edits; 0 behind\nholds      version 2 of the manifest\n" +
		"format     iceberg\nversion    2, with 1 files\npublished  1 of 1 edits; 0 behind\nholds      version 2 of the manifest\n"
	if got := must(t, "", "publish", "--format", "delta,iceberg", url); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	var d publishverb.PublishedDoc
	for _, format := range []string{"delta", "iceberg", "delta,iceberg"} { // the other table is no stranger, and nobody is told to delete it
		if got := must(t, "", "published", "--format", format, url); strings.Contains(got, "foreign") {
			t.Errorf("%s: %s", format, got)
		}
	}
	if err := json.Unmarshal([]byte(must(t, "", "published", "--json", "--format", "iceberg", url)), &d); err != nil || d.Format != "iceberg" || d.Version != 2 || d.Published != 1 {
		t.Errorf("%+v, %v", d, err)
	}
	hint, err := os.ReadFile(filepath.Join(dir, "file", "metadata", "version-hint.text"))
	if err != nil || string(hint) != "1000000002" {
		t.Errorf("the hint is %q, %v", hint, err)
	}
	body, err := os.ReadFile(filepath.Join(dir, "file", "metadata", "v1000000002.metadata.json"))
	if err != nil || !strings.Contains(string(body), `"location":"`+url+`/file"`) {
		t.Errorf("%.300s, %v", body, err)
	}
	if got := must(t, "", "verify", url); strings.Contains(got, "metadata/") {
		t.Errorf("verify says %q", got)
	}
	if r := run(t, "", "published", "--format", "iceberg", "--location", "s3://elsewhere/file", url); r.status == 0 || !strings.Contains(r.err, "says that it is at "+url) {
		t.Errorf("%+v", r)
	}
	if r := run(t, "", "publish", "--format", "hudi", url); r.status != 64 || !strings.Contains(r.err, `no format "hudi"`) {
		t.Errorf("%+v", r)
	}
	if got := must(t, "", "unpublish", "--format", "iceberg", url); got != "unpublished; the last version is 3\n" {
		t.Error(got)
	}
	if got := must(t, "", "published", url); !strings.Contains(got, "version    1, with 1 files") {
		t.Error(got)
	}
}
