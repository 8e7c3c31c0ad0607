package compactor

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// What the plan says is deleted is what a compactor then deletes, kind by kind, with
// its size; and making it changes nothing.
func TestPlan(t *testing.T) {
	w := unpruned(t)
	w.Put("tmp/"+uuid.NewString(), []byte("left by a probe"))
	w.Put(layout.FileKey(1, uuid.NewString(), ""), []byte("nobody has committed it"))
	w.Lead(4)
	w.Put("file/odd", []byte("x"))
	before := w.Objects()
	o := small()
	plan, err := mustNew(t, w.Faulty, o).Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if after := w.Objects(); !maps.EqualFunc(before, after, slices.Equal) {
		t.Errorf("%q has become %q", before, after)
	}
	n := w.Faulty.Counts()
	if n.Of(faultstore.Put, "")+n.Of(faultstore.Upload, "")+n.Of(faultstore.Delete, "") > 0 {
		t.Errorf("it made the requests %v", n)
	}
	m := w.Newest()
	if plan.Version != m.Version || plan.Floor != m.Floor.Position || plan.FloorOffset != m.Floor.Offset || plan.FoldObjects != 5 || plan.Truncate != 0 || len(plan.Pins) != 0 {
		t.Errorf("%+v", plan)
	}

	// Without the fold, whose leftovers the plan leaves out.
	w.Token++
	report := w.pruneAs(w.Token)
	after := w.Objects()
	for _, d := range plan.Deletes {
		got := report.Pruned[d.Kind]
		if d.Kind == "manifest" {
			got-- // the one that the pass replaced
		}
		if d.Count != got || len(d.Examples) != min(d.Count, 8) {
			t.Errorf("%+v, and pruned are %d", d, got)
		}
		if d.Count > 8 {
			continue
		}
		var sum int64
		for _, key := range d.Examples {
			sum += int64(len(before[key]))
			if _, there := after[key]; there {
				t.Errorf("%s was to be deleted", key)
			}
		}
		if sum != d.Bytes {
			t.Errorf("%d bytes of %s, they were %d", d.Bytes, d.Kind, sum)
		}
	}
	if len(plan.Deletes) != len(report.Pruned) {
		t.Errorf("planned are %+v, pruned %v", plan.Deletes, report.Pruned)
	}
	for _, kind := range []string{"data", "manifest", "segment", "file", "orphan"} {
		if !slices.ContainsFunc(plan.Deletes, func(d Deletion) bool { return d.Kind == kind && d.Count > 0 && d.Bytes > 0 }) {
			t.Errorf("nothing of kind %s is planned: %+v", kind, plan.Deletes)
		}
	}
	w.holds("at the end")
}

// The merges that are planned are those that are made.
func TestPlanMerges(t *testing.T) {
	w := newWorld(t, 0, nil)
	for range 7 {
		w.Lead(2)
		w.compact(w.Mem, nil)
	}
	plan, err := mustNew(t, w.Mem, small()).Plan(t.Context())
	if err != nil || len(plan.Merges) == 0 {
		t.Fatalf("%+v, %v", plan, err)
	}
	want := 0
	for _, m := range plan.Merges {
		want += len(m.Segments)
	}
	r := w.compact(w.Mem, small())
	if r.Merged != want {
		t.Errorf("planned are %d, merged %d: %+v", want, r.Merged, plan)
	}
	w.holds("at the end")
}

// Pins, what is given up, and locks are in it too.
func TestPlanTellsAll(t *testing.T) {
	h := &hands{}
	w := agedLog(t, h, 50*time.Hour, time.Hour)
	if _, err := w.State.Pin(t.Context(), &state.PinOptions{Name: "backup-2026-11", Holder: "me"}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		w.Lead(1)
		w.compact(w.Mem, &Options{Settle: logtest.Quick, Clock: h})
	}
	o := &Options{Settle: logtest.Quick, Clock: h, Retain: Retain{Age: 24 * time.Hour}, Leader: &leader.Options{Prune: leader.PruneOptions{Keep: 1}}}
	for e := range uint64(3) {
		w.Put("lock/"+layout.FormatNumber(e+1)+".json", []byte("{}"))
	}
	plan, err := mustNew(t, w.Mem, o).Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	locks := slices.IndexFunc(plan.Deletes, func(d Deletion) bool { return d.Kind == "lock" && d.Count == 2 })
	if plan.Start != 0 || plan.Truncate != 10 || locks < 0 || len(plan.Pins) != 1 || plan.Pins[0].Name != "backup-2026-11" || plan.Pins[0].Holder != "me" {
		t.Errorf("%+v", plan)
	}
	if len(w.Keys("lock/")) != 3 {
		t.Error("locks are gone")
	}
	for name, o := range map[string]*Options{"young": {Settle: logtest.Quick, Clock: h, Retain: Retain{Age: 100 * time.Hour}}} {
		plan, err := mustNew(t, w.Mem, o).Plan(t.Context())
		if err != nil || plan.Truncate > plan.Start {
			t.Errorf("%s: %+v, %v", name, plan, err)
		}
	}
	if _, err := mustNew(t, memstore.New(nil), nil).Plan(t.Context()); err == nil {
		t.Error("there is no log")
	}
}
