package layout

import (
	"strings"
	"testing"
)

const (
	someID = "00000000-0000-4000-8000-000000000001"
	id     = "11111111111111111111111111111111"
)

// owns are keys of every kind that logs, backups, groups and stores for files have.
func owns() []string {
	n := FormatNumber(7)
	return []string{
		FormatKey, BackupKey, NumberedKey(LockPrefix, 7), NumberedKey(CompactorLockPrefix, 7), CandidateKey(LockPrefix), "data/" + n + "/" + n, ManifestKey(7),
		SegmentKey(Compactor, 7, someID), ListKey(Writer, 7, someID), FileKey(7, someID, ".parquet"), FileKey(7, someID, ""), DeltaCommitKey(7), DeltaHintKey,
		PinKey(someID), "consumer/billing.json", TmpPrefix + someID,
		"group/group.json", "group/head.json", "group/member/" + id + ".json", "group/assign/" + n, "group/ack/" + id + "/" + n + "/" + n + ".json", "group/call/" + id + "/joined.json", "group/ready/" + id + "/" + n + ".json",
		id + "/" + n + "/" + someID + ".parquet", SharedDir + "/" + id + ".json", SharedDir + "/" + TmpPrefix + someID,
	}
}

// guard:own-names. Without this check: a log ends in slot 1/2; a script keeps a value in the register
// data/…1/…2; its write creates the next object of the log; no leader can append after it, and no
// reader can read past it.
func TestOwned(t *testing.T) {
	for _, key := range owns() {
		if KindOf(key) == KindUnknown && !strings.HasPrefix(key, "group/") && key != BackupKey && !strings.Contains(key, SharedDir) && !strings.HasPrefix(key, "11") {
			t.Errorf("%s is of no kind", key)
		}
		below := []string{key, "orders/" + key, "team/orders/" + key, "partition/000007/" + key, "compactors/" + key, strings.ToUpper(key)}
		if key != FormatKey && key != BackupKey {
			below = append(below, key+"/x", "orders/"+key+"/x/y")
		}
		for _, k := range below {
			if Owned("s3://bucket/x", k) == "" {
				t.Errorf("%s is free", k)
			}
		}
		// A store that is opened within the log, at each depth.
		parts := strings.Split(key, "/")
		for i := 1; i < len(parts); i++ {
			place := "file:///logs/orders/" + strings.Join(parts[:i], "/")
			if k := strings.Join(parts[i:], "/"); Owned(place, k) == "" {
				t.Errorf("%s is free in %s", k, place)
			}
			// Each folder of the key: as an object it would be in the way.
			if k := "orders/" + strings.Join(parts[:i], "/"); Owned("s3://bucket", k) == "" && parts[0] != id {
				t.Errorf("%s is free", k)
			}
		}
	}
	for _, first := range []string{
		"data", "lock", "compactor-lock", "manifest", "segment", "list", "pin", "file", "consumer", "tmp", "group", "partition", "compactors", "_fencepost", "_delta_log", ".fencepost", ".fencepost%", ".FENCEPOST%%", "format.json", "backup.json",
	} {
		for _, key := range []string{first, first + "/latest"} {
			if Owned("mem://", key) == "" {
				t.Errorf("%s is free", key)
			}
		}
	}
	for place, key := range map[string]string{
		"file:///srv/log": "orders/.fencepost/lock/list", "s3://bucket": "orders/data", "mem://data": FormatNumber(1) + "/" + FormatNumber(1),
		"file:///srv/log/data/" + FormatNumber(1): FormatNumber(2), "file:///srv/consumer": "state.json", "s3://lake": "sales/_delta_log/00000000000000000000.json", "s3://lake/sales": "x/_delta_log",
		"s3://lake/sales/_delta_log": "x", "s3://groups": "grp/partition/000001", "s3://groups/grp": "x/partition", "s3://groups/grp/partition": "000001", "mem://group": "x/compactors",
		"mem://lease": "consumer/x.lease.json", "mem://lease/consumer": "x.epoch.json", "s3://groups/grp/group/member": id + ".json", "s3://groups/grp/group": "ack/" + id, "s3://groups/grp/group/assign": FormatNumber(1), "mem://below": "format.json/x.lease.json",
	} {
		if Owned(place, key) == "" {
			t.Errorf("%s is free in %s", key, place)
		}
	}
	for _, c := range [][2]string{
		{"s3://bucket", "latest"}, {"s3://data", "latest"}, {"file:///data", "latest"}, {"file:///tmp/x", "latest.json"}, {"file:///tmp/" + someID, "latest.json"}, {"file:///srv/lock", "latest"},
		{"s3://bucket/partition/000001", "latest"}, {"s3://bucket", "reports/" + id}, {"s3://bucket", "reports/" + someID + ".json"},
		{"s3://bucket", "reports/data/latest"}, {"s3://bucket/group", "latest"}, {"s3://bucket", "team/partition/000001/latest"}, {"s3://bucket", "team/compactors/latest"},
		{"file:///home/u/.fencepost/orders", "latest"}, {"s3://b/.fencepost-prod/orders", "latest"}, {"s3://b", ".fencepost-prod/latest"}, {"s3://b", "data/indexer.lease.json"}, {"s3://b", "data/indexer.epoch.json"},
		{"s3://b", "group/controller.lease.json"}, {"s3://b", "data/group/tmp/x.lease.json"}, {"s3://b/consumer/x", "latest.json"}, {"s3://b/group/member/x", "latest.json"}, {"s3://b/group/member", "latest.json"}, {"s3://b/group/assign", "latest"}, {"s3://b/group/ack", "latest"}, {"s3://b", "group/member/x.lease.json"}, {"s3://b", "format.json.lease.json"},
		{"mem://", "metadata/x"}, {"mem://", "formats.json"},
	} {
		if what := Owned(c[0], c[1]); what != "" {
			t.Errorf("%s in %s is said to belong to %s", c[1], c[0], what)
		}
	}
}

func TestOwnedElection(t *testing.T) {
	for _, prefix := range []string{
		"data/", "manifest/", "consumer/", "pin/", "file/", "file/_delta_log/", "tmp/", "lock/x/", "compactor-lock/x/", "group/", "group/member/", "partition/000001/", "compactors/", "orders/manifest/", "orders/consumer/",
		"format.json/", "backup.json/", "_fencepost/", "orders/file/_delta_log/", "orders/.fencepost/",
	} {
		if OwnedElection(prefix) == "" {
			t.Errorf("%s is free", prefix)
		}
	}
	for _, prefix := range []string{LockPrefix, CompactorLockPrefix, "orders/lock/", "election/", "jobs/", ".fencepost-prod/"} {
		if what := OwnedElection(prefix); what != "" {
			t.Errorf("%s is said to belong to %s", prefix, what)
		}
	}
	for _, prefix := range []string{"_delta_log/", "sales/_delta_log/", "orders/partition/000001/manifest/"} {
		if OwnedElection(prefix) == "" {
			t.Errorf("%s is free", prefix)
		}
	}
}
