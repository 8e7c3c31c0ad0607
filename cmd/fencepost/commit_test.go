package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost/fencepost"
)

func TestCommit(t *testing.T) {
	url := newLog(t, memURL(t))
	two := parquetFile(t, 2)
	type doc struct {
		Committed    bool
		Files, Epoch int
		Cursor       string
	}
	if d := parsed[doc](t, "commit", "--json", "--cursor", "1", url, two, parquetFile(t, 3)); !d.Committed || d.Files != 2 || d.Epoch != 1 || d.Cursor != "1" {
		t.Errorf("%+v", d)
	}
	// Tried again it does nothing.
	if d := parsed[doc](t, "commit", "--json", "--cursor", "1", url, two); d.Committed || d.Files != 0 {
		t.Errorf("%+v", d)
	}
	if out := must(t, "", "commit", "--cursor", "2", url, two); out != "committed 1 file\n" {
		t.Errorf("%s", out)
	}
	if out := must(t, "", "commit", "--cursor", "2", url, two); !strings.Contains(out, "nothing to commit") {
		t.Errorf("%s", out)
	}
	if rows := liveRows(t, url); rows != 7 {
		t.Errorf("the table has %d rows", rows)
	}
	for name, c := range map[string]struct {
		args   []string
		status int
		says   string
	}{
		"no file":             {[]string{url}, 64, "commit takes"},
		"a file that is gone": {[]string{url, filepath.Join(t.TempDir(), "gone")}, 1, "gone"},
		"no Parquet":          {[]string{url, writeFile(t, "a\n")}, 1, "input: "},
		"no rows":             {[]string{url, parquetFile(t, 0)}, 1, "no rows"},
		"a lower cursor":      {[]string{"--cursor", "1", url, two}, 1, "must not go down"},
		"a bad value":         {[]string{"--value", "day", url, two}, 64, "COLUMN=VALUE"},
	} {
		if r := run(t, "", append([]string{"commit"}, c.args...)...); r.status != c.status || !strings.Contains(r.err, c.says) {
			t.Errorf("%s: status %d: %s", name, r.status, r.err)
		}
	}
	if rows := liveRows(t, url); rows != 7 {
		t.Errorf("what failed has changed the table: %d rows", rows)
	}
}

// While another process leads, a commit waits only if it is told to.
func TestCommitWaits(t *testing.T) {
	url := newLog(t, memURL(t))
	leads, done := make(chan struct{}), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		done <- fencepost.Run(ctx, openStore(t, url), nil, func(ctx context.Context, _ *fencepost.Session) error {
			close(leads)
			<-ctx.Done()
			return context.Cause(ctx)
		})
	}()
	<-leads
	file := parquetFile(t, 1)
	if r := run(t, "", "commit", url, file); r.status != 75 || !strings.Contains(r.err, "--wait") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
	waits := make(chan result, 1)
	go func() { waits <- run(t, "", "commit", "--wait", url, file) }()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if r := <-waits; r.status != 0 || liveRows(t, url) != 1 {
		t.Errorf("status %d: %s", r.status, r.err)
	}
}

func TestCommitUnderExec(t *testing.T) {
	url := newLog(t, memURL(t))
	t.Setenv("FENCEPOST_EPOCH", "3")
	t.Setenv("FENCEPOST_URL", url)
	if r := run(t, "", "commit", url, parquetFile(t, 1)); r.status != 64 || !strings.Contains(r.err, "append --protocol json --epoch") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
}
