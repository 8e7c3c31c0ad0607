package delta

import (
	"strings"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
)

// step makes the next version of a state, which names a manifest for some logs.
func (k *memory) step(object string, holds map[byte]uint64) {
	var actions []action
	for log, m := range holds {
		actions = append(actions, holdAction(fence.ID{log}, Hold{Manifest: m}))
	}
	k.version++
	k.past.add(&k.state, store.Version(object), actions)
	k.commits[k.version] = store.Info{Version: store.Version(object)}
}

// memory is a state that only remembers, and a listing of its versions.
type memory struct {
	state
	listing
}

func newMemory() *memory {
	k := &memory{*newState(), listing{commits: map[int64]store.Info{}, checkpoints: map[int64]store.Info{}}}
	k.version = -1
	return k
}

// manifests is what is remembered of a version.
func (k *memory) named(version int64) map[byte]uint64 {
	all, ok := k.past.at(&k.listing, version)
	if !ok {
		return nil
	}
	named := map[byte]uint64{}
	for log, m := range all {
		named[log[0]] = m
	}
	return named
}

// A publisher remembers which manifest each version names, also after it has forgotten older ones. It
// does not use that of a version which is another object now.
//
// guard:delta-past-same. A Delta version names a manifest, whose pin keeps the version's files. A
// publisher remembers which manifest each version names. Without this check: publisher A reads version
// 8, which names manifest 9, and sleeps before its cleanup; an operator restores the Delta log from a
// backup that ends with version 7; others create another version 8, which names manifest 5, and later
// versions; a week later A wakes, and lists the Delta log; version 8 is the oldest within the
// retention; A remembers manifest 9 for it, and releases the pin of manifest 5; a compactor deletes
// file F, which version 8 has.
func TestPast(t *testing.T) {
	k := newMemory()
	k.step("a", nil)
	k.step("b", map[byte]uint64{1: 5})
	k.step("c", map[byte]uint64{1: 5, 2: 7})
	k.step("d", map[byte]uint64{1: 9})
	check := func(version int64, want string) {
		t.Helper()
		got := "unknown"
		if all := k.named(version); all != nil {
			got = ""
			for log := byte(1); log <= 2; log++ {
				if m, ok := all[log]; ok {
					got += string('0'+rune(log)) + ":" + string('0'+rune(m)) + " "
				}
			}
		}
		if strings.TrimSpace(got) != want {
			t.Errorf("version %d: got %q, want %q", version, got, want)
		}
	}
	check(0, "")
	check(1, "1:5")
	check(2, "1:5 2:7")
	check(3, "1:9 2:7")
	check(4, "unknown")
	k.past.forget(2)
	check(1, "unknown")
	check(2, "1:5 2:7")
	k.step("e", map[byte]uint64{2: 8})
	check(3, "1:9 2:7")
	check(4, "1:9 2:8")

	// Somebody has deleted version 3, and a zombie has created another one.
	k.commits[3] = store.Info{Version: "x"}
	check(3, "unknown")
	delete(k.commits, 4)
	check(4, "unknown")
}

// What is remembered is bounded.
func TestPastIsBounded(t *testing.T) {
	k := newMemory()
	for range 3 * maxPast {
		k.version++
		k.past.add(&k.state, "x", nil)
	}
	if n := len(k.past.commits); n < maxPast || n > maxPast+maxPast/4 {
		t.Errorf("%d versions are remembered, want about %d", n, maxPast)
	}
	if k.past.first+int64(len(k.past.commits)) != k.version+1 {
		t.Errorf("the first of %d versions is %d, and the last one %d", len(k.past.commits), k.past.first, k.version)
	}
}
