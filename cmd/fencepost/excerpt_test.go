package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	filesverb "github.com/fencepost/fencepost/cmd/fencepost/internal/verb/files"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/writer"
)

func TestExcerpt(t *testing.T) {
	url := newLog(t, freshURL(t))
	must(t, "{\"a\": 1}\nplain <b>\n17\n\xff\n\"str\"\n\n", "append", url)
	export := func(args ...string) []string {
		t.Helper()
		out := must(t, "", slices.Concat([]string{"cat", "--json"}, args, []string{url})...)
		return strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	}
	for name, c := range map[string]struct {
		args []string
		want []string // after the time
	}{
		"all":   {nil, []string{`"value":{"a":1}}`, `"text":"plain <b>\n"}`, `"value":17}`, `"base64":"/wo="}`, `"value":"str"}`, `"text":"\n"}`}},
		"exact": {[]string{"--exact"}, []string{`"text":"{\"a\": 1}\n"}`, `"text":"plain <b>\n"}`, `"text":"17\n"}`, `"base64":"/wo="}`, `"text":"\"str\"\n"}`, `"text":"\n"}`}},
		"range": {[]string{"--from", "1", "--to", "3"}, []string{`"text":"plain <b>\n"}`, `"value":17}`}},
		"empty": {[]string{"--from", "3", "--to", "3"}, []string{""}},
		"over":  {[]string{"--from", "5", "--to", "99"}, []string{`"text":"\n"}`}},
		"end":   {[]string{"--from", "6"}, []string{""}}, // as a script asks that has all of it
	} {
		for range 2 {
			lines := export(c.args...)
			if len(lines) != len(c.want) {
				t.Fatalf("%s: %q", name, lines)
			}
			for i, l := range lines {
				if !strings.HasSuffix(l, c.want[i]) || l != "" && !json.Valid([]byte(l)) {
					t.Errorf("%s: line %d is %s, want %s", name, i, l, c.want[i])
				}
			}
			must(t, "", "compact", url)
		}
	}
	if lines := export("--from", "4"); len(lines) != 2 || !strings.HasPrefix(lines[0], `{"offset":4,"time":"`) {
		t.Errorf("%q", lines)
	}
	// Times: all of it is younger than an hour.
	future := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for _, c := range []struct {
		args []string
		want int
	}{
		{[]string{"--since", "1h"}, 6}, {[]string{"--since", future}, 0}, {[]string{"--until", "1h"}, 0}, {[]string{"--until", future}, 6}, {[]string{"--since", "2020-01-31", "--until", future}, 6},
	} {
		if lines := export(c.args...); len(slices.DeleteFunc(lines, func(s string) bool { return s == "" })) != c.want {
			t.Errorf("%q: %q", c.args, lines)
		}
	}
	if pins := parsed[[]survey.Pin](t, "pins", "--json", url); len(pins) != 0 {
		t.Errorf("%+v", pins)
	}
}

// TestTruncate: cat begins where the log does, and an offset before is an
// error that says where that is.
func TestTruncate(t *testing.T) {
	url := newLog(t, freshURL(t))
	must(t, "a\nb\n", "append", url)
	must(t, "", "compact", url)
	must(t, "c\n", "append", url)
	if got := must(t, "", "truncate", "--before", "1", url); got != "the log begins at record 1\n" {
		t.Error(got)
	}
	if got := must(t, "", "truncate", "--before", "0", url); got != "the log begins at record 1\n" {
		t.Errorf("after a truncation further back: %s", got)
	}
	must(t, "", "compact", "--json", url)
	if got := must(t, "", "cat", url); got != "b\nc\n" {
		t.Errorf("%q", got)
	}
	if got := must(t, "", "cat", "--json", url); strings.Count(got, "\n") != 2 {
		t.Errorf("%q", got)
	}
	for _, args := range [][]string{{"cat", "--from", "0"}, {"cat", "--json", "--from", "0", "--to", "1"}, {"cat", "--to", "1"}} {
		if r := run(t, "", append(args, url)...); r.status != 1 || !strings.Contains(r.err, "begins at 1") {
			t.Errorf("%q: status %d, %s", args, r.status, r.err)
		}
	}
	if out := must(t, "", "compact", "--retain-records", "1", url); !strings.Contains(out, "gave up the records before 2\n") {
		t.Error(out)
	}
	if out := must(t, "", "compact", "--dry-run", url); out == "" {
		t.Error("a dry run says nothing")
	}
	if out := must(t, "", "compact", "--dry-run", "--json", url); !json.Valid([]byte(out)) {
		t.Error(out)
	}
}

// TestBeyondTheEnd: an offset that the log has not reached is an error that says where
// it ends; its end itself is none.
func TestBeyondTheEnd(t *testing.T) {
	url := newLog(t, freshURL(t))
	must(t, "a\nb\n", "append", url)
	for range 2 {
		for _, args := range [][]string{{"cat", "--from"}, {"cat", "--to", "9", "--from"}} {
			if r := run(t, "", append(args, "3", url)...); r.status != 1 || !strings.Contains(r.err, "offset 3; the log ends at 2") || r.out != "" {
				t.Errorf("%q: status %d, %s", args, r.status, r.err)
			}
			if out := must(t, "", append(args, "2", url)...); out != "" {
				t.Errorf("%q: %s", args, out)
			}
		}
		must(t, "", "compact", url)
	}
}

// TestTruncateByTime gives up what is earlier, and nothing if all is later.
func TestTruncateByTime(t *testing.T) {
	url := newLog(t, freshURL(t))
	must(t, "a\nb\n", "append", url)
	must(t, "", "compact", url)
	between := time.Now()
	must(t, "c\n", "append", url)
	must(t, "", "compact", url)
	for _, c := range []struct{ before, says string }{
		{"1w", "the log begins at record 0\n"},
		{between.Format(time.RFC3339Nano), "the log begins at record 2\n"},
		{"1w", "the log begins at record 2\n"},
		{time.Now().Add(time.Hour).Format(time.RFC3339Nano), "the log begins at record 3\n"},
	} {
		if got := must(t, "", "truncate", "--before-time", c.before, url); got != c.says {
			t.Errorf("before %s: %s", c.before, got)
		}
	}
	// What is not compacted is not given up.
	must(t, "d\n", "append", url)
	r := run(t, "", "truncate", "--before-time", time.Now().Add(time.Hour).Format(time.RFC3339Nano), url)
	if r.status != 1 || !strings.Contains(r.err, "compact first") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
}

// TestTruncateWaits no longer than it is told for another compactor.
func TestTruncateWaits(t *testing.T) {
	url := newLog(t, freshURL(t))
	e, err := leader.New(openStore(t, url), "compactor-lock", nil)
	if err != nil {
		t.Fatal(err)
	}
	term, err := e.Campaign(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, "", "truncate", "--before", "0", "--wait", "100ms", url)
	if r.status != 1 || !strings.Contains(r.err, "waiting for ") || !strings.Contains(r.err, "another compactor was at work") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
	if err := term.Resign(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestTruncateMayTakeLonger: --wait is for another compactor. What takes long afterwards is not its fault.
func TestTruncateMayTakeLonger(t *testing.T) {
	url := newLog(t, memURL(t))
	must(t, "a\nb\n", "append", url)
	must(t, "", "compact", url)
	var out, errs buffer
	a := &kit.Kit{In: strings.NewReader(""), Out: &out, Err: &errs, Open: func(ctx context.Context, url string) (store.Store, error) {
		st, err := store.Open(ctx, url)
		faulty := faultstore.New(st, nil)
		faulty.SetBefore(func(_ context.Context, op faultstore.Op) {
			if op.Kind == faultstore.Put && layout.KindOf(op.Key) == "manifest" {
				time.Sleep(3 * time.Second)
			}
		})
		return faulty, err
	}}
	if got := runWith(t.Context(), a, []string{"truncate", "--before", "1", "--wait", "2s", url}); got != 0 {
		t.Errorf("status %d: %s", got, &errs)
	}
}

// TestCompactWithoutAReader: a process that compacts for ever does not end with success when nobody reads its lines.
func TestCompactWithoutAReader(t *testing.T) {
	url := newLog(t, fileURL(t))
	c := command(t, "compact", "--watch", "--json", "--interval", "10ms", "--min-objects", "1", url)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs buffer
	c.Stderr = &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	_ = out.Close()
	must(t, "a\n", "append", url)
	if got := exitStatus(t, c.Wait()); got != 1 || !strings.Contains(errs.String(), "its JSON cannot be written any more") {
		t.Errorf("status %d: %s", got, &errs)
	}
}

// table makes a log with records, files and properties.
func table(t *testing.T, url string) []string {
	t.Helper()
	w, err := writer.Open(t.Context(), openStore(t, url), fence.NewToken(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for i := range 2 {
		if _, err := w.Append(t.Context(), [][]byte{[]byte("record")}, writer.Cursor([]byte{byte('a' + i)})); err != nil {
			t.Fatal(err)
		}
		f, err := w.CreateFile(t.Context(), ".parquet", 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte("rows")); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, f.File().Key)
		if err := w.CommitFiles(t.Context(), manifest.Edit{Add: []manifest.File{f.File()}, Properties: map[string]string{"rows": strings.Repeat("i", i+1)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	slices.Sort(keys)
	return keys
}

func TestFiles(t *testing.T) {
	url := newLog(t, freshURL(t))
	keys := table(t, url)
	var doc filesverb.TableDoc
	look := func(args ...string) filesverb.TableDoc {
		t.Helper()
		doc = parsed[filesverb.TableDoc](t, slices.Concat([]string{"files", "--json"}, args, []string{url})...)
		return doc
	}
	if got, want := must(t, "", "files", url), keys[0]+"\t4\t0\n"+keys[1]+"\t4\t0\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if look(); len(doc.Files) != 2 || doc.End != 2 || doc.Properties["rows"] != "ii" || string(doc.Cursor) != "b" || doc.CursorText != "b" {
		t.Errorf("%+v", doc)
	}
	must(t, "", "compact", url)
	v := look().Version
	must(t, "more\n", "append", url)
	if out := must(t, "", "pin", "--name", "backup", url); !strings.Contains(out, "as backup: 2 records, 0 to 1, 2 files") {
		t.Error(out)
	}
	pins := parsed[[]survey.Pin](t, "pins", "--json", url)
	if len(pins) != 1 || pins[0].Version < v || pins[0].Name != "backup" || pins[0].TTL != "" {
		t.Errorf("%+v", pins)
	}
	if out := must(t, "", "pins", url); !strings.Contains(out, "backup") || !strings.Contains(out, "never") {
		t.Error(out)
	}
	// What is pinned is to be had, whatever is pruned.
	for range 3 {
		must(t, "x\n", "append", url)
		must(t, "", "compact", url)
	}
	if look("--at", fmt.Sprint(pins[0].Version)); len(doc.Files) != 2 || doc.End != 2 || doc.Version != pins[0].Version {
		t.Errorf("%+v", doc)
	}
	if r := run(t, "", "unpin", "", url); r.status != 64 {
		t.Errorf("unpin without a name: status %d: %s", r.status, r.err)
	}
	if out := must(t, "", "unpin", "backup", url); out != "unpinned backup\n" {
		t.Error(out)
	}
	must(t, "", "compact", url)
	if r := run(t, "", "files", "--at", fmt.Sprint(pins[0].Version), url); r.status != 1 || !strings.Contains(r.err, "kept are ") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
	if out := must(t, "", "pins", url); out != "" {
		t.Error(out)
	}
}

// freshURL names a store that no earlier run of the same test has filled.
func freshURL(t testing.TB) string { return memURL(t) + "/" + uuid.NewString() }

// TestFormatLost: where only format.json is gone nobody is told to make a log, and no
// epoch is won for it.
func TestFormatLost(t *testing.T) {
	url := newLog(t, freshURL(t))
	must(t, "a\n", "append", url)
	st := openStore(t, url)
	if err := st.Delete(t.Context(), layout.FormatKey); err != nil {
		t.Fatal(err)
	}
	locks := func() (n int) {
		for _, err := range st.List(t.Context(), "lock/", nil) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}
	before := locks()
	for _, verb := range [][]string{{"append"}, {"cat"}, {"cat", "--to", "9"}, {"files"}, {"status"}, {"compact"}, {"truncate", "--before", "0"}, {"pin", "--name", "x"}, {"pins"}, {"unpin", "x"}, {"publish"}, {"published"}, {"unpublish"}, {"step-down"}} {
		r := run(t, "b\n", append(verb, url)...)
		if r.status != 65 || !strings.Contains(r.err, "put an older version of format.json back") || strings.Contains(r.err, "fencepost init") {
			t.Errorf("%q: status %d, %s", verb, r.status, r.err)
		}
	}
	if n := locks(); n != before {
		t.Errorf("%d locks, %d before", n, before)
	}
}
