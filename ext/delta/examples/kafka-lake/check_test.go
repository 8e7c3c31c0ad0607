package main

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// produced is a ledger of two partitions with five messages each, and the rows that they become.
func produced() (*ledger, []entry) {
	l := newLedger(2)
	var rows []entry
	for p := range int32(2) {
		for offset := range int64(5) {
			m := message(int(offset))
			m.Partition, m.Offset = p, offset
			l.settled.Add(1)
			l.add(m, nil)
			rows = append(rows, entry{p, offset, hash(m.Key, m.Value)})
		}
	}
	return l, rows
}

// TestCheckBites: a check that finds nothing wrong proves nothing unless it finds what is wrong.
func TestCheckBites(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(rows []entry) []entry
		want verdict // without the numbers of messages
		says string
	}{
		"nothing is wrong":  {func(r []entry) []entry { return r }, verdict{}, ""},
		"another order":     {func(r []entry) []entry { r[0], r[9] = r[9], r[0]; return r }, verdict{}, ""},
		"one is lost":       {func(r []entry) []entry { return append(r[:2], r[3:]...) }, verdict{Lost: 1, Gaps: 1}, "partition 0 offset 2 is lost"},
		"the last is lost":  {func(r []entry) []entry { return r[:9] }, verdict{Lost: 1}, "partition 1 offset 4 is lost"},
		"one is doubled":    {func(r []entry) []entry { return append(r, r[7]) }, verdict{Doubled: 1}, "partition 1 offset 2 is there twice"},
		"lost and doubled":  {func(r []entry) []entry { r[3] = r[2]; return r }, verdict{Lost: 1, Doubled: 1, Gaps: 1}, "is lost"},
		"another value":     {func(r []entry) []entry { r[0].hash++; return r }, verdict{Changed: 1}, "another key or value"},
		"never produced":    {func(r []entry) []entry { return append(r, entry{1, 5, 1}) }, verdict{Strange: 1}, "partition 1 offset 5 was never produced"},
		"another partition": {func(r []entry) []entry { return append(r, entry{2, 0, 1}) }, verdict{Strange: 1}, "partition 2 was never produced"},
		"nothing is there":  {func([]entry) []entry { return nil }, verdict{Lost: 10}, "is lost"},
	} {
		t.Run(name, func(t *testing.T) {
			l, rows := produced()
			rows = c.edit(rows)
			v := l.compare(func(f func(entry)) {
				for _, r := range rows {
					f(r)
				}
			})
			if v.Lost != c.want.Lost || v.Doubled != c.want.Doubled || v.Strange != c.want.Strange || v.Changed != c.want.Changed || v.Gaps != c.want.Gaps {
				t.Errorf("%+v, want %+v", v, c.want)
			}
			if err := v.err(); (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("it says %v, want %q", err, c.says)
			}
		})
	}
}

// A message that Kafka has not acknowledged ends the story: nobody could say what must be in the table.
func TestLedgerKeepsFaults(t *testing.T) {
	l := newLedger(1)
	l.settled.Add(1)
	l.add(&kgo.Record{}, kgo.ErrAborting)
	if _, err := l.count(); err == nil {
		t.Error("a message that failed is not reported")
	}
}

// TestVersionsBite: the check of the versions finds one that has a gap, a message twice, or less than the one
// before, also if the newest version is right.
func TestVersionsBite(t *testing.T) {
	rows := func(first, end int64) (all []entry) {
		for i := first; i < end; i++ {
			all = append(all, entry{offset: i})
		}
		return all
	}
	for name, c := range map[string]struct {
		versions [][]string
		says     string
	}{
		"right":            {[][]string{{}, {"a"}, {"a", "b"}, {"b", "a", "c"}, {"ab", "c"}}, ""},
		"a gap":            {[][]string{{"a"}, {"a", "c"}, {"a", "b", "c"}}, "version 1"},
		"twice":            {[][]string{{"a"}, {"a", "ab"}, {"ab"}}, "version 1"},
		"back":             {[][]string{{"a", "b"}, {"a"}, {"a", "b"}}, "version 1"},
		"back to nothing":  {[][]string{{"a"}, {}, {"a"}}, "version 1"},
		"not from the end": {[][]string{{"b"}}, "version 0"},
	} {
		t.Run(name, func(t *testing.T) {
			table := &deltaTable{versions: c.versions, files: map[string][]entry{"a": rows(0, 10), "b": rows(10, 20), "c": rows(20, 25), "ab": rows(0, 20)}}
			if err := table.prefixes(); (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("it says %v, want %q", err, c.says)
			}
		})
	}
}

// A commit that adds a file twice, or removes one that is not there, is an error.
func TestDeltaBites(t *testing.T) {
	active := map[string]bool{"a": true}
	for _, line := range []string{`{"add":{"path":"a"}}`, `{"remove":{"path":"b"}}`, `{"protocol":{"minReaderVersion":3}}`, `{`} {
		if apply([]byte(line), active) == nil {
			t.Errorf("%s is taken", line)
		}
	}
}
