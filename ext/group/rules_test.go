package group_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/store/probe"
	"github.com/fencepost/fencepost/verify"
)

// ruled is a store whose bucket has rules.
type ruled struct {
	store.Store
	rules []store.Expiry
	err   error
}

func (r ruled) Expiries(_ context.Context, prefix string) (all []store.Expiry, err error) {
	for _, e := range r.rules {
		if strings.HasPrefix(prefix, e.Prefix) || strings.HasPrefix(e.Prefix, prefix) {
			all = append(all, e)
		}
	}
	return all, r.err
}

// TestRulesOfGroup: a rule that deletes objects of a group, or all its logs, is a problem, and one only.
func TestRulesOfGroup(t *testing.T) {
	quick := &probe.Options{Clients: 2, Rounds: 1, Keys: 1, Refusals: 2, UploadSize: 1}
	st := memstore.New(nil)
	err := group.Create(t.Context(), st, &group.Options{Partitions: 3, Probe: quick})
	for p := 0; p < 3 && err == nil; p++ {
		var log store.Store
		if log, err = store.Sub(st, group.PartitionPrefix(p)); err == nil {
			_, err = manifest.Init(t.Context(), log, &manifest.InitOptions{Probe: quick})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	for prefix, bad := range map[string]bool{
		"": true, "partition/": true, "parti": true, "partition/000001/data/": true, "group/": true, "group/member/": true, "compactors/": true,
		"tmp/": false, "partition/000001/tmp/": false, "compactors/tmp/": false, "groups/": false, "partitions/": false, "compactors-of-mine/": false,
	} {
		want := 0
		if bad {
			want = 1
		}
		r := ruled{Store: st, rules: []store.Expiry{{Rule: "tidy", Prefix: prefix, What: "deletes objects after 30 days"}}}
		report, err := group.Check(t.Context(), r, nil)
		if err != nil || len(report.Problems) != want {
			t.Errorf("%q: %v, %v", prefix, err, report.Problems)
		}
		if found, err := group.Rules(t.Context(), r, nil); err != nil || len(found) != want {
			t.Errorf("%q: %v, %v", prefix, err, found)
		}
	}
	report, err := group.Check(t.Context(), ruled{Store: st, err: &store.Error{Op: "lifecycle", Kind: store.ErrDenied}}, nil)
	if err != nil || !report.OK() || len(report.Notes) != 1 {
		t.Errorf("denied: %v, %+v", err, report)
	}
	log := memstore.New(nil) // no group is there, but other objects with such names
	for _, key := range []string{"partition/000000/x", "group/members.csv"} {
		fixture.Put(t, log, key, nil)
	}
	found, err := group.Rules(t.Context(), ruled{Store: log, rules: []store.Expiry{{Prefix: "partition/"}}}, nil)
	if err != nil || len(found) > 0 {
		t.Errorf("%v, %v", err, found)
	}
}

// TestRulesOfFilesOfGroup: the logs of a group share a store for their files, whose rule is told once.
func TestRulesOfFilesOfGroup(t *testing.T) {
	quick := &probe.Options{Clients: 2, Rounds: 1, Keys: 1, Refusals: 2, UploadSize: 1}
	st, files := memstore.New(nil), memstore.New(nil)
	err := group.Create(t.Context(), st, &group.Options{Partitions: 2, Probe: quick})
	for p := 0; p < 2 && err == nil; p++ {
		var log store.Store
		if log, err = store.Sub(st, group.PartitionPrefix(p)); err == nil {
			_, err = manifest.Init(t.Context(), log, &manifest.InitOptions{Probe: quick, Files: files})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	second := ruled{Store: files, rules: []store.Expiry{{Rule: "tidy", What: "deletes objects after 30 days"}}}
	if r, err := group.Check(t.Context(), st, &group.CheckOptions{Verify: &verify.Options{Files: second}}); err != nil || len(r.Problems) != 1 {
		t.Errorf("%v, %v", err, r.Problems)
	}
}

// TestNoGroupButLog: the log beside what seems to be a group is read.
func TestNoGroupButLog(t *testing.T) {
	st := memstore.New(nil)
	if _, err := manifest.Init(t.Context(), st, &manifest.InitOptions{Probe: &probe.Options{Clients: 2, Rounds: 1, Keys: 1, Refusals: 2, UploadSize: 1}}); err != nil {
		t.Fatal(err)
	}
	fixture.Put(t, st, group.PartitionsPrefix+"eu.csv", []byte("of another program"))
	r, err := group.Check(t.Context(), st, nil)
	if err != nil || len(r.Problems) != 1 || r.Objects["format"].Objects != 1 {
		t.Errorf("%v, %+v", err, r)
	}
}

// TestFilesOfSome: the logs of a group keep their files in another store, and the log beside the group in itself.
func TestFilesOfSome(t *testing.T) {
	quick := &probe.Options{Clients: 2, Rounds: 1, Keys: 1, Refusals: 2, UploadSize: 1}
	st, files := memstore.New(nil), memstore.New(nil)
	err := group.Create(t.Context(), st, &group.Options{Partitions: 1, Probe: quick})
	log, serr := store.Sub(st, group.PartitionPrefix(0))
	if err = errors.Join(err, serr); err == nil {
		_, err = manifest.Init(t.Context(), log, &manifest.InitOptions{Probe: quick, Files: files})
	}
	if err == nil {
		_, err = manifest.Init(t.Context(), st, &manifest.InitOptions{Probe: quick})
	}
	if err != nil {
		t.Fatal(err)
	}
	if r, err := group.Check(t.Context(), st, &group.CheckOptions{Verify: &verify.Options{Files: files}}); err != nil || !r.OK() || r.Group.Logs != 1 || r.Objects["format"].Objects != 2 {
		t.Errorf("%v, %+v", err, r)
	}
}
