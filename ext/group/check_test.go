package group_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/verify"
)

// bodies reads all objects below a prefix.
func bodies(t *testing.T, st store.Store, prefix string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for info, err := range store.ListAll(context.Background(), st, prefix, nil, nil) {
		if err != nil {
			t.Fatal(err)
		}
		body, _, err := store.Read(context.Background(), st, info.Key, &store.ReadOptions{Limit: 1 << 24})
		if err != nil {
			t.Fatal(err)
		}
		all[info.Key] = body
	}
	return all
}

// Check checks a whole group: its own objects, those of its compactors, and the log of each partition.
func TestCheck(t *testing.T) {
	whole := map[string][]byte{}
	inFleet(t, 3, func(f *fleet) {
		a := f.join("ada")
		time.Sleep(time.Minute)
		b, c := f.join("bob"), f.compact("cid", 0)
		time.Sleep(time.Minute)
		// It may run beside members.
		r, err := group.Check(f.Context(), f.faulty.Client("verify"), &group.CheckOptions{Verify: &verify.Options{Clock: clock.Go()}})
		if err != nil || !r.OK() {
			f.Errorf("beside members: %v, %v", r.Problems, err)
		}
		f.stop(a)
		f.stop(c)
		whole = bodies(f.T, f.mem, "")
		f.stop(b)
	})
	last := func(prefix string) (key string) {
		for k := range whole {
			if strings.HasPrefix(k, prefix) {
				key = max(key, k)
			}
		}
		if key == "" {
			t.Fatalf("there is no %s", prefix)
		}
		return key
	}
	flip := func(key string) func(map[string][]byte) {
		return func(all map[string][]byte) {
			b := bytes.Clone(all[key])
			b[len(b)/2] ^= 4
			all[key] = b
		}
	}
	without := func(prefixes ...string) func(map[string][]byte) {
		return func(all map[string][]byte) {
			for key := range all {
				if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(key, p) }) {
					delete(all, key)
				}
			}
		}
	}
	newest := last("group/assign/")
	for name, c := range map[string]struct {
		change func(map[string][]byte)
		key    string // of the first problem; empty if there is none
		what   string
	}{
		"whole":                          {func(map[string][]byte) {}, "", ""},
		"a record":                       {flip(last("partition/000001/segment/")), last("partition/000001/segment/"), ""},
		"an assignment":                  {flip(newest), newest, "checksum"},
		"a member":                       {flip(last("group/member/")), last("group/member/"), "checksum"},
		"a member of the compactors":     {flip(last("compactors/group/member/")), last("compactors/group/member/"), "checksum"},
		"the newest assignment is lost":  {without(newest), newest, " refers to it"},
		"all assignments and references": {without("group/assign", "group/head", "group/ready", "group/ack"), "partition/000000/", "assignments were lost"},
		"group.json is lost":             {without("group/group.json"), "group/group.json", "no member can join"},
		"the group is lost":              {without("group/"), "group/group.json", "a partition has a log"},
	} {
		t.Run(name, func(t *testing.T) {
			all := map[string][]byte{}
			for key, body := range whole {
				all[key] = body
			}
			c.change(all)
			st := memstore.New(nil)
			for key, body := range all {
				if _, err := st.Put(t.Context(), key, body, nil); err != nil {
					t.Fatal(err)
				}
			}
			if is, err := group.Exists(t.Context(), st, nil); !is || err != nil {
				t.Errorf("IsGroup: %v, %v", is, err)
			}
			r, err := group.Check(t.Context(), st, nil)
			switch {
			case err != nil:
				t.Fatal(err)
			case c.key == "" && (!r.OK() || r.Group.Logs != 3 || r.Group.Partitions != 3 || r.Group.Records < 300 || r.Group.Members < 1 || r.Segments < 3):
				t.Errorf("%+v; %+v", r, r.Group)
			case c.key != "" && !slices.ContainsFunc(r.Problems, func(f verify.Finding) bool {
				return f.Key == c.key && strings.Contains(f.What, c.what) && f.Remedy != ""
			}):
				t.Errorf("problems %v, want one of %s: %s", r.Problems, c.key, c.what)
			}
		})
	}
	if _, err := group.Check(t.Context(), memstore.New(nil), nil); !errors.Is(err, group.ErrNoGroup) {
		t.Errorf("where there is no group: %v", err)
	}
	if _, err := group.Check(t.Context(), memstore.New(nil), &group.CheckOptions{Concurrency: -1}); !errors.Is(err, group.ErrOptions) {
		t.Errorf("Concurrency -1: %v", err)
	}
}
