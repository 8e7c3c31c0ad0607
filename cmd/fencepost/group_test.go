package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	groupverb "github.com/fencepost/fencepost/cmd/fencepost/internal/verb/group"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/probe"
)

// workers joins members to a group of a test's own store.
type workers struct {
	t        testing.TB
	st       store.Store
	validity time.Duration // 3 s if it is 0: then a busy machine ends no session
	ends     []chan error
}

func newGroup(t testing.TB, rawURL string) *workers {
	t.Helper()
	return &workers{t: t, st: openStore(t, rawURL)}
}

// add starts a worker. It ends with the test, if not before.
func (w *workers) add(identity string) {
	w.t.Helper()
	g, err := group.Join(w.t.Context(), w.st, &group.Options{
		Partitions: 8, Validity: cmp.Or(w.validity, 3*time.Second), Identity: identity, Data: "at " + identity,
		Probe: &probe.Options{Clients: 2, Rounds: 1, Keys: 1, Refusals: 2, UploadSize: 1},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- g.Run(w.t.Context(), func(ctx context.Context, _ *group.Partition) error {
			<-ctx.Done()
			return nil
		})
	}()
	w.ends = append(w.ends, ended)
	w.t.Cleanup(func() { <-ended })
}

// ended waits until the Run of a worker has returned nil.
func (w *workers) ended(i int) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("the Run of worker %d returns", i), func() bool { return len(w.ends[i]) == 1 })
	err := <-w.ends[i]
	w.ends[i] <- nil // for the cleanup
	if err != nil {
		w.t.Errorf("the Run of worker %d returns %v", i, err)
	}
}

func TestGroupStatus(t *testing.T) {
	url := memURL(t)
	w := newGroup(t, url)
	w.add("ada")
	w.add("bob")
	var d survey.Group
	eventually(t, "both own four partitions", func() bool {
		if err := json.Unmarshal([]byte(must(t, "", "group", "status", "--json", url)), &d); err != nil {
			t.Fatal(err)
		}
		return len(d.Members) == 2 && d.Members[0].Owned == 4 && d.Members[1].Owned == 4 && len(d.Moving) == 0
	})
	if d.Partitions != 8 || d.Validity != 3 || d.Assignment == 0 || d.Organiser != d.Members[0].Name || len(d.Unowned) != 0 || len(d.Owners) != 8 || d.Members[1].State != "live" {
		t.Errorf("%+v", d)
	}
	table := must(t, "", "group", "status", url)
	for _, s := range []string{"group      without a name; 8 partitions, validity 3s; assignment ", "organiser  ", "MEMBER ", groupverb.Short(d.Members[0].Name), " ada ", "at bob", " live ", "0-"} {
		if !strings.Contains(table, s) {
			t.Errorf("the table does not say %q:\n%s", s, table)
		}
	}
}

func TestGroupWatch(t *testing.T) {
	url := memURL(t)
	w := newGroup(t, url)
	w.add("ada")
	ctx, stop := context.WithCancelCause(t.Context())
	var out, errs buffer
	ended := make(chan int, 1)
	go func() {
		a := &kit.Kit{In: strings.NewReader(""), Out: &out, Err: &errs, Open: store.Open}
		ended <- runWith(ctx, a, []string{"group", "status", "--watch", "--json", url})
	}()
	eventually(t, "it shows the first member", func() bool { return strings.Contains(out.String(), `"ada"`) })
	w.add("bob")
	eventually(t, "it shows the second one, too", func() bool { return strings.Contains(out.String(), `"bob"`) })
	stop(errors.New("enough"))
	if status := <-ended; status != kit.ExitFailed || !strings.Contains(errs.String(), "enough") {
		t.Errorf("status %d, %s", status, errs.String())
	}
	for l := range strings.Lines(out.String()) {
		if err := json.Unmarshal([]byte(l), &survey.Group{}); err != nil {
			t.Errorf("%v: %s", err, l)
		}
	}
}

func TestGroupDrain(t *testing.T) {
	url := memURL(t)
	w := newGroup(t, url)
	for i, identity := range []string{"ada", "bob"} {
		w.add(identity)
		eventually(t, identity+" owns its share", func() bool {
			d := parsed[survey.Group](t, "group", "status", "--json", url)
			return len(d.Members) == i+1 && d.Members[i].Owned == 8/(i+1) && len(d.Moving) == 0
		})
	}
	if out := must(t, "", "group", "drain", url, "ada"); !strings.HasPrefix(out, "ada (") || !strings.HasSuffix(out, "has left\n") {
		t.Errorf("it says %s", out)
	}
	w.ended(0)
	eventually(t, "bob owns all", func() bool {
		s := must(t, "", "group", "status", url)
		return strings.Contains(s, "0-7") && !strings.Contains(s, "moving") && !strings.Contains(s, "unowned")
	})
	if r := run(t, "", "group", "drain", url, "ada"); r.status != kit.ExitFailed || !strings.Contains(r.err, `no such member called "ada"`) {
		t.Errorf("status %d, %s", r.status, r.err)
	}
	if out := must(t, "", "group", "drain", "--no-wait", url, "bob"); !strings.Contains(out, "is told to leave; it owns 8 partitions") {
		t.Errorf("it says %s", out)
	}
	w.ended(1)
	eventually(t, "nobody owns anything", func() bool {
		return strings.Contains(must(t, "", "group", "status", url), "unowned    8 partitions: 0-7\n")
	})
}

// compact --group --watch folds the logs of all partitions, and tells how many are its own.
func TestCompactGroup(t *testing.T) {
	url := memURL(t)
	w := newGroup(t, url)
	w.add("ada")
	must(t, "a\nb\n", "append", url+"/partition/000003")
	ctx, stop := context.WithCancelCause(t.Context())
	var errs buffer
	ended := make(chan int, 1)
	go func() {
		a := &kit.Kit{In: strings.NewReader(""), Out: io.Discard, Err: &errs, Open: store.Open}
		ended <- runWith(ctx, a, []string{"compact", "--watch", "--group", "--interval", "50ms", "--max-age", "1ms", "--validity", "1s", "--requests-per-second", "500", url})
	}()
	eventually(t, "it has compacted the log of a partition", func() bool {
		n := 0
		st := openStore(t, url+"/partition/000003")
		for range st.List(t.Context(), "segment/", nil) {
			n++
		}
		return n == 1
	})
	if !strings.Contains(errs.String(), "this process compacts 8 of 8 partitions; processes that share them: 1") {
		t.Errorf("it says %s", errs.String())
	}
	stop(errors.New("enough"))
	if status := <-ended; status != kit.ExitFailed || !strings.Contains(errs.String(), "enough") {
		t.Errorf("status %d, %s", status, errs.String())
	}
}

// retry takes back what a member said. The members that gave the partition up are no processes: there are only their calls.
func TestGroupRetry(t *testing.T) {
	url := memURL(t)
	w := newGroup(t, url)
	w.add("ada")
	var d survey.Group
	look := func() survey.Group {
		d = survey.Group{}
		if err := json.Unmarshal([]byte(must(t, "", "group", "status", "--json", url)), &d); err != nil {
			t.Fatal(err)
		}
		return d
	}
	eventually(t, "ada owns all", func() bool { return len(look().Members) == 1 && d.Members[0].Owned == 8 })
	if out := must(t, "", "group", "retry", url); out != "nobody has given up such a partition\n" {
		t.Errorf("it says %q", out)
	}
	for i := range 3 {
		key := fmt.Sprintf("group/call/%032d/%020d.json", i+1, 1)
		doc := map[string]any{"format": 1, "nonce": "n", "given": []any{map[string]any{"partition": 5, "tenure": d.Assignment, "hung": true}}}
		body, err := document.Encode(key, doc)
		if err == nil {
			_, err = w.st.Put(t.Context(), key, body, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "nobody owns 5", func() bool { return slices.Equal(look().GivenUp, []int{5}) && slices.Equal(d.Unowned, []int{5}) })
	if out := must(t, "", "group", "retry", url, "5", "6"); out != "1 partition may run again: 5\n" {
		t.Errorf("it says %q", out)
	}
	eventually(t, "ada owns all again", func() bool { return len(look().Unowned)+len(d.GivenUp) == 0 })
}
