package main

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/store"
)

// TestAwait: verbs that run until they are stopped wait for a log or a group that is not there yet. They
// say for what, and are ready meanwhile.
func TestAwait(t *testing.T) {
	for name, c := range map[string]struct {
		args, waits string
		makes       func(t *testing.T, url string)
		then        string // in the metrics
	}{
		"cat":     {"cat --follow", "no log yet", appendOne, "\nfencepost_reader_records_total 1\n"},
		"compact": {"compact --watch --interval 10ms --min-objects 1", "no log yet", appendOne, "\nfencepost_compactor_folded_records_total 1\n"},
		"publish": {"publish --watch --every 10ms", "no log yet", func(t *testing.T, url string) { commitParquet(t, url, 1) }, "\nfencepost_delta_files 1\n"},
		"group": {"compact --watch --group --validity 1s", "no group yet", func(t *testing.T, url string) {
			if err := group.Create(t.Context(), openStore(t, url), &group.Options{Partitions: 3, Validity: time.Second}); err != nil {
				t.Fatal(err)
			}
		}, "\nfencepost_group_owned_partitions 3\n"},
	} {
		t.Run(name, func(t *testing.T) {
			url := memURL(t)
			address, errs, _ := background(t, nil, append(strings.Fields(c.args), "--listen", "127.0.0.1:0", url)...)
			eventually(t, "it says for what it waits", func() bool {
				return strings.Contains(errs.String(), "there is "+c.waits+" at "+url) && strings.Contains(errs.String(), "until it is there or a signal comes")
			})
			if status, body := get(t, address+"/readyz"); status != 200 {
				t.Errorf("%d %s", status, body)
			}
			c.makes(t, url)
			eventually(t, c.then, func() bool {
				_, body := get(t, address+"/metrics")
				return strings.Contains(body, c.then)
			})
		})
	}
}

func appendOne(t *testing.T, url string) { must(t, "one\n", "append", newLog(t, url)) }

// TestAwaitARestore: a verb that waits goes on while the log is being restored: then there are objects, and no format.json
// yet. One that begins then ends, since that may as well be damage.
func TestAwaitARestore(t *testing.T) {
	from, to := memURL(t), fileURL(t)
	appendOne(t, from)
	address, errs, _ := background(t, nil, "cat", "--follow", "--listen", "127.0.0.1:0", to)
	eventually(t, "it waits", func() bool { return strings.Contains(errs.String(), "there is no log yet") })
	st, part := openStore(t, from), openStore(t, to)
	var format []byte
	for info, err := range st.List(t.Context(), "", nil) {
		if err != nil {
			t.Fatal(err)
		}
		b, _, err := store.Read(t.Context(), st, info.Key, &store.ReadOptions{Limit: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		if info.Key == layout.FormatKey {
			format = b
			continue
		}
		fixture.Put(t, part, info.Key, b)
	}
	eventually(t, "it says what it sees", func() bool { return strings.Contains(errs.String(), "has no format.json") })
	if !strings.Contains(errs.String(), "; waiting goes on\n") {
		t.Fatal(errs)
	}
	if r := run(t, "", "cat", "--follow", to); r.status == 0 || !strings.Contains(r.err, "has no format.json") {
		t.Errorf("%+v", r)
	}
	fixture.Put(t, part, layout.FormatKey, format)
	eventually(t, "it reads the log", func() bool {
		_, body := get(t, address+"/metrics")
		return strings.Contains(body, "\nfencepost_reader_records_total 1\n")
	})
}

// TestAwaitEnds: a signal ends the wait, and a verb that ends by itself does not wait.
func TestAwaitEnds(t *testing.T) {
	url := memURL(t)
	for _, verb := range []string{"compact", "publish"} {
		if r := run(t, "", verb, url); r.status != 66 || !strings.Contains(r.err, "no log here") {
			t.Errorf("%s: %+v", verb, r)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		errs := &buffer{}
		ended := make(chan int, 1)
		go func() {
			ended <- runWith(ctx, (&kit.Kit{Out: io.Discard, Err: errs, Open: store.Open}), []string{verb, "--watch", url})
		}()
		eventually(t, "it waits", func() bool { return strings.Contains(errs.String(), "there is no log yet") })
		cancel(&kit.InterruptedError{Signal: 15})
		if got := <-ended; got != 143 {
			t.Errorf("%s: status %d, %s", verb, got, errs)
		}
	}
}

// TestAwaitADirectoryThatIsReplaced: a verb that waits reads the log that is there then, also if its directory is another one.
func TestAwaitADirectoryThatIsReplaced(t *testing.T) {
	url := fileURL(t)
	dir := strings.TrimPrefix(url, "file://")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	address, errs, _ := background(t, nil, "cat", "--follow", "--listen", "127.0.0.1:0", url)
	eventually(t, "it waits", func() bool { return strings.Contains(errs.String(), "there is no log yet") })
	made := fileURL(t)
	appendOne(t, made)
	if err := errors.Join(os.Rename(dir, dir+".old"), os.Rename(strings.TrimPrefix(made, "file://"), dir)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it reads the log", func() bool {
		_, body := get(t, address+"/metrics")
		return strings.Contains(body, "\nfencepost_reader_records_total 1\n")
	})
}
