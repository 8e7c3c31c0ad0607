package delta

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store/memstore"
)

// A commit that does not fit the state says why, and which file it is about.
//
// guard:delta-other-log. A publisher leaves out a log that adds a file of another log; this check finds
// a commit in which that happened all the same. Without this check: a faulty publisher creates a Delta
// version in which log T adds file F of log S; other publishers accept it, and take F for a file of T;
// an edit of T removes F; the table lacks F, which is live in S.
func TestActionsThatDoNotFit(t *testing.T) {
	there := small().files["1/a.parquet"]
	other := *there
	other.log = fence.ID{2}.String()
	bare := there.add(true)
	bare.Tags = nil
	away := there.add(true)
	away.Path = "../x"
	for says, a := range map[string]action{
		"two logs write below one name": {Add: other.add(true)},
		"by another program":            {Add: bare},
		"lies outside":                  {Add: away},
		"is not active":                 {Remove: &remove{Path: "1/none"}},
	} {
		if _, err := small().after([]action{a}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
	s := small()
	if p, err := s.after([]action{{Add: there.add(true)}}); err != nil || p != s.proof() {
		t.Errorf("the same file again: %v, %v", p, err)
	}
}

// Two actions for one path in one commit would be a version that nobody can read: they are refused
// before it is written.
//
// guard:delta-path-once. Logs that add files of other logs were left out before, so this is the last
// check before the create. Without this check: by a mistake in the publisher, one file is twice in
// version 8; its commit says two files more, and version 8 is created; each publisher that reads it
// finds one file more, takes the table for damaged, and stops.
func TestPathsTwiceInACommit(t *testing.T) {
	there := small().files["1/a.parquet"]
	fresh := *there
	fresh.path = "1/fresh.parquet"
	other := fresh
	other.log = fence.ID{2}.String()
	for name, all := range map[string][]action{
		"two logs add one path":  {{Add: fresh.add(true)}, {Add: other.add(true)}},
		"added twice":            {{Add: fresh.add(true)}, {Add: fresh.add(true)}},
		"removed twice":          {{Remove: there.remove(1, true)}, {Remove: there.remove(1, true)}},
		"removed and added":      {{Remove: there.remove(1, true)}, {Add: there.add(true)}},
		"added and then removed": {{Add: there.add(true)}, {Remove: there.remove(1, true)}},
	} {
		if p, err := small().after(all); err == nil {
			s := small()
			t.Errorf("%s: it would be written with %d files, and then: %v", name, p.Files, s.apply(all))
		}
	}
}

// A source that is a copy of another one is left out, and the others are not.
func TestCopiedSource(t *testing.T) {
	there := small().files["1/a.parquet"]
	works := make([]*work, 3)
	for i, key := range []string{"file/1/a.parquet", "file/1/new.parquet", "file/1/new.parquet"} {
		works[i] = &work{source: &source{feed: &feed{log: fence.ID{byte(2 + i)}}}, steps: []step{{add: []manifest.File{{Key: key}}}}}
	}
	p := &pub{state: small()}
	p.claim(works)
	if !errors.Is(works[0].err, ErrSource) || !strings.Contains(works[0].err.Error(), there.log) || works[1].err != nil || !errors.Is(works[2].err, ErrSource) {
		t.Error(works[0].err, works[1].err, works[2].err)
	}
}

// A checkpoint forgets what was removed longer ago than the retention.
func TestForgetsRemovedFiles(t *testing.T) {
	s := small()
	s.version, s.gone = 100, map[string]*remove{"1/old": {Path: "1/old", Deleted: 1}, "1/new": {Path: "1/new", Deleted: time.Now().UnixMilli()}}
	tt := &table{st: memstore.New(nil), clock: clock.Go()}
	if err := tt.checkpoint(t.Context(), s, time.Hour); err != nil || len(s.gone) != 1 || s.gone["1/new"] == nil {
		t.Errorf("%v, %v", s.gone, err)
	}
}
