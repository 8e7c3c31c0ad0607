package main

import (
	"reflect"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store/probe"
)

// TestAppendEpoch: an epoch appends once, and an earlier one never again.
func TestAppendEpoch(t *testing.T) {
	log := newLog(t, memURL(t))
	if got := must(t, "a\n", "append", "--json", "--epoch", "5", log); !strings.Contains(got, `"epoch": 5`) {
		t.Error(got)
	}
	for epoch, says := range map[string]string{"5": "epoch 5 has opened this log already", "4": "replaced by that of epoch 5"} {
		if r := run(t, "zombie\n", "append", "--epoch", epoch, log); r.status != kit.ExitFenced || !strings.Contains(r.err, says) {
			t.Errorf("epoch %s: status %d, %s", epoch, r.status, r.err)
		}
	}
	must(t, "b\n", "append", "--epoch", "6", log)
	if got := contents(t, log); got != "a\nb\n" {
		t.Errorf("%q", got)
	}
}

// TestAppendPartition: the log is the partition's, and only the group has probed the store.
func TestAppendPartition(t *testing.T) {
	url := memURL(t)
	st := openStore(t, url)
	if err := group.Create(t.Context(), st, &group.Options{Partitions: 3}); err != nil {
		t.Fatal(err)
	}
	must(t, "a\n", "append", "--epoch", "70000", "--partition", "2", url)
	if got := contents(t, url+"/"+group.PartitionPrefix(2)); got != "a\n" {
		t.Errorf("%q", got)
	}
	must(t, "b\n", "append", "--epoch", "70000", "--partition", "1", url)
	var probes []probe.Report
	for p := range 2 {
		f, err := manifest.ReadFormat(t.Context(), openStore(t, url+"/"+group.PartitionPrefix(p+1)), nil)
		if err != nil || f.Probe == nil {
			t.Fatal(f, err)
		}
		probes = append(probes, *f.Probe)
	}
	if !reflect.DeepEqual(probes[0], probes[1]) {
		t.Errorf("the logs of partitions were probed: %+v", probes)
	}
	if r := run(t, "b\n", "append", "--epoch", "70001", "--partition", "3", url); r.status != kit.ExitUsage || !strings.Contains(r.err, "3 partitions, with the numbers 0 to 2") {
		t.Errorf("status %d, %s", r.status, r.err)
	}
	if r := run(t, "b\n", "append", "--epoch", "7", "--partition", "0", newLog(t, memURL(t)+"2")); r.status != kit.ExitNoLog || !strings.Contains(r.err, "group.json") {
		t.Errorf("status %d, %s", r.status, r.err)
	}
}

func TestAppendEpochUsage(t *testing.T) {
	log := newLog(t, memURL(t))
	for args, says := range map[string]string{
		"--partition 0":             "--partition goes with --epoch",
		"--epoch 0":                 "from 1 on",
		"--epoch x":                 "from 1 on",
		"--epoch 3 --partition -1":  "from 0 on",
		"--epoch 3 --validity 1m0s": "exclude each other",
	} {
		if r := run(t, "", append(append([]string{"append"}, strings.Fields(args)...), log)...); r.status != kit.ExitUsage || !strings.Contains(r.err, says) {
			t.Errorf("%s: status %d, %s", args, r.status, r.err)
		}
	}
	// Under exec at the same URL an append that elects would wait until exec kills it.
	t.Setenv("FENCEPOST_EPOCH", "3")
	t.Setenv("FENCEPOST_URL", log)
	if r := run(t, "a\n", "append", log); r.status != kit.ExitUsage || !strings.Contains(r.err, "--epoch") {
		t.Errorf("status %d, %s", r.status, r.err)
	}
	// Under lock at the same URL nobody leads: the epoch is a token that counts locks.
	t.Setenv("FENCEPOST_LOCK", "nightly")
	other := newLog(t, fileURL(t))
	t.Setenv("FENCEPOST_URL", other)
	must(t, "a\n", "append", other)
	must(t, "", "commit", other, parquetFile(t, 1))
	t.Setenv("FENCEPOST_LOCK", "")
	t.Setenv("FENCEPOST_URL", log)
	t.Setenv("FENCEPOST_PARTITION", "1")
	must(t, "a\n", "append", log) // a log beside the group has its own election
	if all, err := logtest.Read(openStore(t, log), 0, nil); err != nil || len(all) != 1 {
		t.Errorf("%q, %v", all, err)
	}
}
