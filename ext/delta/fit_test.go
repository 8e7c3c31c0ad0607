package delta_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/store/probe"
	"github.com/fencepost/fencepost/writer"
)

// shared is some logs that have their files in one store.
func shared(t *testing.T, n int) (root store.Store, sources []delta.Source, all []*writer.Writer) {
	t.Helper()
	root = memstore.New(nil)
	for range n {
		st := memstore.New(nil)
		_, err := manifest.Init(t.Context(), st, &manifest.InitOptions{
			Files: root, Probed: fixture.Probed(time.Now()), Probe: &probe.Options{Clients: 2, Rounds: 1, Keys: 1, Refusals: 2, UploadSize: 1},
		})
		var w *writer.Writer
		if err == nil {
			w, err = writer.Open(t.Context(), st, fence.NewToken(1), &writer.Options{Files: root, Settle: logtest.Quick})
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = w.Close(t.Context()) })
		sources, all = append(sources, delta.Source{Log: st}), append(all, w)
	}
	return root, sources, all
}

// The table comes after two Writers were opened. The one whose rows do not fit it commits nothing.
//
// guard:delta-fit-again. Without this check: two Writers of different logs are opened before the table
// is there; the first commits a column id of whole numbers, and is published; the second commits a
// column id of texts, which does not fit; its log is left out of the table until somebody removes the
// file.
func TestSchemaAtCommit(t *testing.T) {
	for _, how := range []string{"commit", "finish", "a complete file"} {
		t.Run(how, func(t *testing.T) {
			root, sources, all := shared(t, 2)
			one, err := delta.NewWriter(t.Context(), all[0], &delta.WriterOptions[struct{ ID int64 }]{Table: root})
			if err != nil {
				t.Fatal(err)
			}
			type text struct{ ID string }
			two, err := delta.NewWriter(t.Context(), all[1], &delta.WriterOptions[text]{Table: root})
			if err != nil {
				t.Fatal(err)
			}
			defer two.Close()
			p, err := delta.Open(t.Context(), root, sources, nil)
			if err == nil {
				err = errors.Join(one.Write(t.Context(), []struct{ ID int64 }{{1}}), one.Commit(t.Context()))
			}
			if err != nil {
				t.Fatal(err)
			}
			round(t, p)
			switch how {
			case "commit":
				err = errors.Join(two.Write(t.Context(), []text{{"x"}}), two.Commit(t.Context()))
			case "finish":
				err = two.Write(t.Context(), []text{{"x"}})
				if err == nil {
					_, err = two.Finish(t.Context())
				}
			default:
				f := parquetOf(t, text{"x"})
				err = errors.Join(two.WriteParquet(t.Context(), f, f.Size(), nil), two.Commit(t.Context()))
			}
			if !errors.Is(err, delta.ErrSchema) || !strings.Contains(fmt.Sprint(err), "the column ID is string, and long in the table") {
				t.Errorf("got %v", err)
			}
			if err := two.Commit(t.Context()); !errors.Is(err, delta.ErrSchema) {
				t.Errorf("again: %v", err)
			}
			if r := round(t, p); r.Sources[1].Edits != 0 {
				t.Errorf("it was committed: %+v", r)
			}
		})
	}
}

// Two complete files have a column that the rows lack, with different types.
func TestSchemaOfCompleteFiles(t *testing.T) {
	root, _, all := shared(t, 1)
	w, err := delta.NewWriter(t.Context(), all[0], &delta.WriterOptions[struct{ ID int64 }]{Table: root})
	if err != nil {
		t.Fatal(err)
	}
	a, b := parquetOf(t, struct{ More int64 }{1}), parquetOf(t, struct{ More string }{"x"})
	if err := w.WriteParquet(t.Context(), a, a.Size(), nil); err != nil {
		t.Fatal(err)
	}
	if err := w.WriteParquet(t.Context(), b, b.Size(), nil); !errors.Is(err, delta.ErrSchema) {
		t.Errorf("got %v", err)
	}
	if err := w.Commit(t.Context()); err != nil || w.Pending() != 0 {
		t.Errorf("after that: %v", err)
	}
}

// A partition value that is none of the column's type is refused before the commit, also if the table
// came after the Writer was opened.
func TestPartitionAtCommit(t *testing.T) {
	for _, late := range []bool{false, true} {
		for _, complete := range []bool{false, true} {
			t.Run(fmt.Sprint(late, complete), func(t *testing.T) {
				root, sources, all := shared(t, 2)
				p, err := delta.Open(t.Context(), root, sources, &delta.Options{Partition: []delta.Column{{Name: "day", Type: "date"}}})
				if err != nil {
					t.Fatal(err)
				}
				table := func() {
					commitTo(t, all[0], []order{{ID: 1}})
					round(t, p)
				}
				if !late {
					table()
				}
				day := map[string]string{"day": "2026-11-26"}
				w, err := delta.NewWriter(t.Context(), all[1], &delta.WriterOptions[order]{Table: root, Partition: func(*order) map[string]string { return day }})
				if err == nil {
					err = w.Write(t.Context(), []order{{ID: 2}})
				}
				if err != nil {
					t.Fatal(err)
				}
				day = map[string]string{"day": "tomorrow"}
				if complete {
					f := parquetOf(t, order{ID: 3})
					err = w.WriteParquet(t.Context(), f, f.Size(), day)
				} else {
					err = w.Write(t.Context(), []order{{ID: 3}})
				}
				if late {
					if err != nil {
						t.Fatal(err)
					}
					table()
					err = w.Commit(t.Context())
				}
				if !errors.Is(err, delta.ErrSchema) || !strings.Contains(fmt.Sprint(err), `the partition column day is date in the table, and the value is "tomorrow"`) {
					t.Errorf("got %v", err)
				}
				if r := round(t, p); r.Sources[1].Edits != 0 {
					t.Errorf("it was committed: %+v", r)
				}
			})
		}
	}
}

// A Writer reads the table again until it is there, and then only for each 64th commit.
func TestWriterReadsTheTableSeldom(t *testing.T) {
	root, sources, all := shared(t, 1)
	st := faultstore.New(root, nil)
	w, err := delta.NewWriter(t.Context(), all[0], &delta.WriterOptions[order]{Table: st})
	if err != nil {
		t.Fatal(err)
	}
	p, err := delta.Open(t.Context(), root, sources, nil)
	if err != nil {
		t.Fatal(err)
	}
	lists := func(commits int) int {
		before := st.Counts().Of(faultstore.List, "")
		for range commits {
			if err := errors.Join(w.Write(t.Context(), []order{{ID: 1}}), w.Commit(t.Context())); err != nil {
				t.Fatal(err)
			}
		}
		return st.Counts().Of(faultstore.List, "") - before
	}
	absent := lists(3)
	round(t, p)
	if found, later, again := lists(1), lists(63), lists(1); absent != 3 || found != 1 || later != 0 || again != 1 {
		t.Errorf("%d LIST for 3 commits without a table, %d for the first with it, %d for 63 more, and %d for the next", absent, found, later, again)
	}
}
