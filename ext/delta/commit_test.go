package delta

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/store/memstore"
)

func ourHead(t testing.TB) string {
	t.Helper()
	b, err := encodeCommit([]action{{Info: &commitInfo{EngineInfo: "fencepost", Fencepost: &proof{}}}})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A commit takes far more memory than it has bytes. It is an error that names it, and takes little. One that
// is not ours is not even read.
//
// guard:delta-commit-memory. A publisher adds up what the actions of a commit take in memory before it
// decodes them. Without this check: somebody who can write to the Delta log creates a commit of 64 MiB.
// After a first line like ours it has one list of 32 million numbers. Each publisher that reads it
// takes 2 GiB, and a larger one ends the process.
func TestCommitBombs(t *testing.T) {
	if !inChild(t) {
		return
	}
	const mb = 32 << 20
	repeat := func(begin, s, end string) string { return begin + strings.Repeat(s, mb/len(s)) + end }
	for name, lines := range map[string]string{
		"numbers that are no texts": repeat(`{"protocol":{"writerFeatures":[0`, `,0`, `]}}`),
		"texts":                     repeat(`{"protocol":{"writerFeatures":[""`, `,""`, `]}}`),
		"files":                     repeat("", "{\"add\":{}}\n", ""),
		"files with maps":           repeat("", "{\"add\":{\"tags\":{},\"partitionValues\":{}}}\n", ""),
		"all kinds":                 repeat("", `{"add":{},"txn":{},"remove":{},"commitInfo":{},"metaData":{},"protocol":{},"domainMetadata":{}}`+"\n", ""),
		"levels":                    repeat(`{"x":`, `[`, ``),
		"one line":                  repeat(`{"add":{"path":"`, `x`, `"}}`),
		"quotes that are escaped":   repeat(`{"x":"`, `\"`, `"`) + repeat(`,"y":[0`, `,0`, `]}`),
	} {
		for _, ours := range []bool{true, false} {
			body, most := lines, int64(1<<20)
			if ours {
				body, most = ourHead(t)+lines, 2*(commitMemory+maxLine)
			}
			st := memstore.New(nil)
			info, err := st.Put(context.Background(), commitKey(3), []byte(body), nil)
			if err != nil {
				t.Fatal(err)
			}
			tab := &table{st: st, clock: clock.Or(nil), foreign: func(string, string) {}}
			l, err := tab.list(context.Background(), 0)
			if err != nil {
				t.Fatal(err, info)
			}
			var actions []action
			n := test.Allocated(func() {
				if actions, err = tab.commit(context.Background(), l, 3); err == nil {
					err = newState().step(actions)
				}
			})
			if ours {
				n -= 2 * int64(len(body)) // to read it
			}
			want := ErrForeign
			if ours {
				want = ErrDamaged
			}
			if n > most || !errors.Is(err, want) || !strings.Contains(err.Error(), commitKey(map[bool]int64{true: 3, false: 0}[ours])) {
				t.Errorf("%s, ours %v: took %d MiB beyond its %d: %.300v", name, ours, n>>20, len(body)>>20, err)
			}
		}
	}
}

// What a publisher writes can be read, also if the table has many partition columns.
func TestLargeCommitsAreAffordable(t *testing.T) {
	for _, columns := range []int{0, 1, 20, 100, 256} {
		actions := []action{{Info: &commitInfo{EngineInfo: "fencepost", Fencepost: &proof{}}}}
		for i := range 2000 {
			f := &file{path: fmt.Sprintf("00000000000000000001/%08x-1234-4000-8000-%012x.parquet", i, i), partition: map[string]*string{}, stats: `{"numRecords":1}`, log: fence.ID{1}.String()}
			for k := range columns {
				f.partition[fmt.Sprint("p", k)] = nil
			}
			actions = append(actions, action{Add: f.add(true)})
		}
		body, err := encodeCommit(actions)
		if err != nil {
			t.Fatal(err)
		}
		var got []action
		n := test.Allocated(func() { got, err = decodeCommit("key", body) })
		if err != nil || len(got) != len(actions) || n > 2*(commitMemory+commitFactor*int64(len(body))) {
			t.Errorf("%d columns: %d bytes took %d: %d actions, %v", columns, len(body), n, len(got), err)
		}
	}
}

// Who wrote a commit is found at each place of its begin.
//
// guard:delta-commit-ours. Without this check: somebody who can write to the Delta log, but not to the
// logs, creates a commit of millions of lines; each publisher decodes them all, and only then finds
// that the commit proves nothing.
func TestWhoWroteACommit(t *testing.T) {
	spark := `{"commitInfo":{"engineInfo":"spark","operation":"WRITE"}}`
	for body, want := range map[string]string{
		spark:                         `by "spark WRITE"`,
		"{\"add\":{}}\n" + spark:      `by "spark WRITE"`,
		"{\"add\":{}}\n" + ourHead(t): `by "fencepost"`,
		`{"add":{}}`:                  `by "another program"`,
		`{"commitInfo":{"engineInfo":"` + strings.Repeat("x", maxInfo) + `"}}`: `by "another program"`,
		"{\"add\":{}}\n" + spark[:20]:                                          `by "another program"`,
	} {
		actions, err := decodeCommit("key", []byte(body))
		if err == nil {
			err = newState().step(actions)
		}
		if !errors.Is(err, ErrForeign) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%.100s: %v", body, err)
		}
	}
	// Ours, but it sets no protocol.
	actions, err := decodeCommit("key", []byte(ourHead(t)))
	if err == nil {
		err = newState().step(actions)
	}
	if !errors.Is(err, ErrForeign) {
		t.Errorf("no protocol: %v", err)
	}
	for _, body := range []string{"", "\n\n", "x", `{"commitInfo":`, `{"add"`} {
		if _, err := decodeCommit("key", []byte(body)); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "key, line 1") {
			t.Errorf("%q: %v", body, err)
		}
	}
	if all, err := decodeCommit("key", []byte(ourHead(t)+"\n{\"txn\":{}}\n")); err != nil || len(all) != 2 || !slices.ContainsFunc(all, func(a action) bool { return a.Txn != nil }) {
		t.Errorf("%v, %v", all, err)
	}
}
