package delta_test

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// Each edit becomes a version with the files that were live after it.
func TestPublishEachEdit(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		p := k.publisher(nil, nil)
		if r := k.publish(p); r.Version != -1 {
			t.Errorf("a log without edits is published as version %d", r.Version)
		}
		a := k.rows(3)
		b := k.rows(2)
		want := [][]string{k.live()}
		if r := k.publish(p); r.Version != 1 || r.Files != 2 || r.Sources[0].Published != 2 {
			t.Errorf("first: %+v", r)
		}
		k.rows(1, a)
		want = append(want, k.live())
		k.rows(4, b)
		want = append(want, k.live())
		if r := k.publish(p); r.Version != 3 || r.Versions != 2 {
			t.Errorf("second: %+v", r)
		}
		for v, files := range want {
			if got := k.version(int64(v) + 1).paths(); !slices.Equal(got, files) {
				t.Errorf("version %d has %v, want %v", v+1, got, files)
			}
		}
		if r := k.publish(k.publisher(nil, nil)); r.Version != 3 || r.Versions != 0 {
			t.Errorf("another publisher had something to do: %+v", r)
		}
	})
}

// What is folded before it is published is one version.
func TestPublishAfterAFold(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		p := k.publisher(nil, nil)
		a := k.rows(3)
		first := k.publish(p).Sources[0].Manifest
		b := k.rows(1, a)
		k.rows(1, b)
		time.Sleep(time.Minute)
		k.compact()
		time.Sleep(time.Minute)
		k.compact()
		if r := k.publish(p); r.Version != 2 || r.Sources[0].Published != 3 {
			t.Errorf("%+v", r)
		}
		if got := k.version(2).paths(); !slices.Equal(got, k.live()) {
			t.Errorf("version 2 has %v, want %v", got, k.live())
		}
		if !k.Has(a) {
			t.Errorf("%s is gone, and version 1 names it", a)
		}
		if !slices.Contains(k.pins(), first) {
			t.Errorf("pinned are %v, and version 1 names manifest %d", k.pins(), first)
		}
	})
}

// A remove says that it has all that the add had. So it has partition values, also if there are none.
func TestRemoveHasPartitionValues(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		p := k.publisher(nil, nil)
		a := k.rows(1)
		k.publish(p)
		k.rows(1, a)
		r := k.publish(p)
		for _, m := range k.actions(r.Version, "remove") {
			if v, ok := m["partitionValues"]; !ok || fmt.Sprint(v) != "map[]" || m["extendedFileMetadata"] != true {
				t.Errorf("%v", m)
			}
		}
	})
}
