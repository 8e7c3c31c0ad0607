package inspect_test

import (
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/inspect"
)

func TestNames(t *testing.T) {
	const n, id = "00000000000000000007", "0190b3a8-6a4c-7c60-8d0e-0123456789ab"
	for key, want := range map[string]inspect.Name{
		"format.json":                    {Kind: inspect.Format},
		"lock/" + n + ".json":            {Kind: inspect.Lock, Number: 7},
		"lock/candidate.json":            {Kind: inspect.Lock},
		"compactor-lock/" + n + ".json":  {Kind: inspect.CompactorLock, Number: 7},
		"manifest/" + n + ".json":        {Kind: inspect.Manifest, Number: 7},
		"data/" + n + "/" + n:            {Kind: inspect.Data, Slot: fence.Position{Epoch: 7, Seq: 7}},
		"segment/writer/" + n + "/" + id: {Kind: inspect.Segment, ID: "writer/" + n + "/" + id},
		"list/compactor/" + n + "/" + id: {Kind: inspect.List, ID: "compactor/" + n + "/" + id},
		"pin/" + id + ".json":            {Kind: inspect.Pin, ID: id},
		"file/" + n + "/" + id + ".csv":  {Kind: inspect.File, ID: n + "/" + id + ".csv"},
		"file/_delta_log/" + n + ".json": {Kind: inspect.File, ID: "_delta_log/" + n + ".json"},
		"consumer/billing.json":          {Kind: inspect.Consumer, ID: "billing"},
		"tmp/x/y":                        {Kind: inspect.Tmp, ID: "x/y"},
		// What is no such object.
		"":                               {Kind: inspect.Unknown},
		"format.json/":                   {Kind: inspect.Unknown, ID: "format.json/"},
		"backup.json":                    {Kind: inspect.Unknown, ID: "backup.json"},
		"manifest/candidate.json":        {Kind: inspect.Unknown, ID: "manifest/candidate.json"},
		"data/" + n + "/7":               {Kind: inspect.Unknown, ID: "data/" + n + "/7"},
		"pin/x.json":                     {Kind: inspect.Unknown, ID: "pin/x.json"},
		"unknown/" + n:                   {Kind: inspect.Unknown, ID: "unknown/" + n},
		"consumer/.json":                 {Kind: inspect.Unknown, ID: "consumer/.json"},
		"lock/09223372036854775805.json": {Kind: inspect.Unknown, ID: "lock/09223372036854775805.json"}, // no election comes there
	} {
		if got := inspect.Parse(key); got != want {
			t.Errorf("Parse(%q) is %+v, want %+v", key, got, want)
		} else if got.Key() != key {
			t.Errorf("the key of %+v is %q, want %q", got, got.Key(), key)
		}
	}
}

// Each kind has a place in the order, and its objects lie below its prefix.
func TestKinds(t *testing.T) {
	seen := map[inspect.Kind]bool{}
	for _, k := range inspect.Kinds() {
		if seen[k] {
			t.Errorf("%s is there twice", k)
		}
		seen[k] = true
		if p := k.Prefix(); k != inspect.Format && k != inspect.Unknown && p != string(k)+"/" {
			t.Errorf("the prefix of %s is %q", k, p)
		}
	}
	for _, k := range []inspect.Kind{
		inspect.Format, inspect.Lock, inspect.CompactorLock, inspect.Manifest, inspect.Data, inspect.Segment, inspect.List,
		inspect.Pin, inspect.File, inspect.Consumer, inspect.Tmp, inspect.Unknown,
	} {
		if !seen[k] {
			t.Errorf("Kinds lacks %s", k)
		}
		delete(seen, k)
	}
	if len(seen) > 0 {
		t.Errorf("Kinds also has %v", seen)
	}
}
