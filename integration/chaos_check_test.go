//go:build integration && linux

package integration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/sim"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/verify"
)

// check compares what all processes were told with what is in the log.
func (v *town) check(total *Counts) {
	v.bury()
	was := *total
	defer func() {
		if total.bad() > was.bad() {
			v.keep(filepath.Join(v.t.ArtifactDir(), v.prefix))
		}
	}()
	for _, b := range v.broken {
		total.Broken++
		v.t.Errorf("%s: %s", v.prefix, b)
	}
	for _, l := range v.logs {
		l.check(v.t, total, v.populace["reader"] > 0)
	}
	others, same := v.failovers()
	total.Failovers += others
	total.Reopened += same
	for kind, n := range v.faults {
		total.Faults[kind] += n
	}
}

// check compares what was told about one log with what is in it.
func (l *ledger) check(t *testing.T, total *Counts, readers bool) {
	wrong := func(count *int, format string, args ...any) {
		*count++
		t.Errorf("%s: %s", l.name, fmt.Sprintf(format, args...))
	}
	final, err := contents(t.Context(), l.st)
	if err != nil {
		wrong(&total.Broken, "%v", err)
		return
	}
	for _, b := range breaches(l.history.Check(final)) {
		switch b.Kind {
		case "lost", "moved":
			wrong(&total.Lost, "%v", b)
		case "twice":
			wrong(&total.Doubled, "%v", b)
		default:
			wrong(&total.Broken, "%v", b)
		}
	}
	zombies, disorder := overtaken(l.told)
	for _, z := range zombies {
		wrong(&total.Zombies, "%s", z)
	}
	for _, d := range disorder {
		wrong(&total.Broken, "%s", d)
	}
	if err := inOrder(final); err != nil {
		wrong(&total.Gaps, "%v", err)
	}
	for _, s := range together(l.held) {
		wrong(&total.Together, "%s", s)
	}
	for _, d := range l.digests {
		if err := d.check(final); err != nil {
			wrong(&total.Broken, "%v", err)
		}
	}
	report, err := verify.Run(t.Context(), l.st, nil)
	if err != nil || !report.OK() {
		wrong(&total.Broken, "verify: %v %+v", err, report)
	}
	acked, never, maybe := l.history.Counts()
	if acked == 0 || readers && len(l.digests) == 0 {
		wrong(&total.Broken, "nothing was tested: %d records acknowledged, %d digests of readers", acked, len(l.digests))
	}
	total.Acknowledged += acked
	total.Refused += never
	total.Unknown += maybe
	total.Records += len(final)
	total.Digests += len(l.digests)
}

// contents reads the whole log.
func contents(ctx context.Context, st store.Store) (final []string, err error) {
	r, err := reader.Open(ctx, st, nil)
	if err != nil {
		return nil, err
	}
	for rec, err := range r.Read(ctx, 0) {
		if err != nil {
			return nil, fmt.Errorf("record %d: %w", len(final), err)
		}
		final = append(final, value(rec.Value))
	}
	return final, nil
}

// keep copies every object of the log to a folder (see go test -artifacts).
func (v *town) keep(dir string) {
	for info, err := range v.st.List(v.t.Context(), "", nil) {
		if err != nil {
			v.t.Log("keep: ", err)
			return
		}
		if err := v.keepObject(dir, info.Key); err != nil {
			v.t.Log("keep: ", err)
		}
	}
	v.t.Logf("%s: copied every object to %s", v.prefix, dir)
}

func (v *town) keepObject(dir, key string) error {
	o, err := v.st.Get(v.t.Context(), key, nil)
	if err != nil {
		return err
	}
	defer o.Body.Close()
	b, err := io.ReadAll(o.Body) // this test has written it, so its size is known
	name := filepath.Join(dir, filepath.FromSlash(key))
	return errors.Join(err, os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, b, 0o644))
}

// breaches returns the broken promises in an error of the history's checker.
func breaches(err error) (all []*sim.BrokenError) {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return nil
	}
	for _, e := range joined.Unwrap() {
		b := &sim.BrokenError{Kind: "other", Text: e.Error()}
		_ = errors.As(e, &b)
		all = append(all, b)
	}
	return all
}

// acknowledged is an append that was acknowledged. Times are nanoseconds of the machine's
// clock.
type acknowledged struct {
	node             string
	epoch            fence.Epoch
	from             uint64
	called, answered int64
}

// overtaken returns appends that were called after another append was answered, although
// the other one is later in the log. That breaks the order that clients have seen. If the
// other one is of a later epoch, the append is a zombie's: it was acknowledged after its
// successor's append.
func overtaken(all []acknowledged) (zombies, disorder []string) {
	answers := slices.SortedFunc(slices.Values(all), func(a, b acknowledged) int { return cmp.Compare(a.answered, b.answered) })
	calls := slices.SortedFunc(slices.Values(all), func(a, b acknowledged) int { return cmp.Compare(a.called, b.called) })
	var last acknowledged // the last in the log of those answered so far
	for _, a := range calls {
		for len(answers) > 0 && answers[0].answered < a.called {
			if answers[0].from >= last.from {
				last = answers[0]
			}
			answers = answers[1:]
		}
		if last.from <= a.from {
			continue
		}
		text := fmt.Sprintf("%+v was acknowledged before the call of %+v", last, a)
		if last.epoch > a.epoch {
			zombies = append(zombies, text)
		} else {
			disorder = append(disorder, text)
		}
	}
	return zombies, disorder
}

// digested is what a reader reports about the records that it has read.
type digested struct {
	reader   string
	from, to uint64
	sum      uint32
}

func (d digested) check(final []string) error {
	if d.from > d.to || d.to > uint64(len(final)) {
		return fmt.Errorf("%s has read from %d to %d, but the log has %d records", d.reader, d.from, d.to, len(final))
	}
	sum := uint32(0)
	for _, val := range final[d.from:d.to] {
		sum = digest(sum, val)
	}
	if sum != d.sum {
		return fmt.Errorf("%s has read other records from %d to %d than the log has", d.reader, d.from, d.to)
	}
	return nil
}

// inOrder checks that each item of the source is there once, at its place, and that
// epochs only rise. So no zombie's record is in between.
func inOrder(final []string) error {
	last := fence.Epoch(0)
	for i, val := range final {
		var item int
		var epoch fence.Epoch
		if n, err := fmt.Sscanf(val, "%d/%d/", &item, &epoch); n != 2 || err != nil {
			return fmt.Errorf("record %d is %q", i, val)
		}
		if item != i || epoch < last {
			return fmt.Errorf("record %d is item %d of epoch %d, after one of epoch %d", i, item, epoch, last)
		}
		last = epoch
	}
	return nil
}

// TestChaosCheckFinds: check reports each kind of broken promise.
func TestChaosCheckFinds(t *testing.T) {
	right := []acknowledged{
		{epoch: 1, from: 0, called: 1, answered: 9}, // its process was frozen before the answer
		{epoch: 1, from: 2, called: 2, answered: 4},
		{epoch: 2, from: 3, called: 5, answered: 6},
		{epoch: 2, from: 4, called: 6, answered: 7},
	}
	with := func(change acknowledged) []acknowledged { return append(slices.Clone(right), change) }
	for name, c := range map[string]struct {
		told              []acknowledged
		zombies, disorder int
	}{
		"nothing":                   {right, 0, 0},
		"a zombie":                  {with(acknowledged{epoch: 1, from: 3, called: 8, answered: 9}), 1, 0},
		"called before that answer": {with(acknowledged{epoch: 1, from: 3, called: 6, answered: 9}), 0, 0},
		"disorder in an epoch":      {with(acknowledged{epoch: 2, from: 3, called: 8, answered: 9}), 0, 1},
	} {
		zombies, disorder := overtaken(c.told)
		if len(zombies) != c.zombies || len(disorder) != c.disorder {
			t.Errorf("%s: zombies %q, disorder %q", name, zombies, disorder)
		}
	}
	final := []string{"0/1/a", "1/1/a", "2/2/b"}
	if err := inOrder(final); err != nil {
		t.Error(err)
	}
	for _, wrong := range [][]string{{"0/1/a", "2/2/b"}, {"0/2/b", "1/1/a"}, {"0/1/a", "0/1/a"}, {"x"}} {
		if inOrder(wrong) == nil {
			t.Errorf("not reported: %q is not in order", wrong)
		}
	}
	d := digested{from: 1, to: 3, sum: digest(digest(0, final[1]), final[2])}
	if err := d.check(final); err != nil {
		t.Error(err)
	}
	for _, wrong := range [][]string{final[:2], {"0/1/a", "1/1/c", "2/2/b"}} {
		if d.check(wrong) == nil {
			t.Errorf("not reported: the reader has not read %q", wrong)
		}
	}
	var told sim.Told
	told.Appended("a", 1, []string{"x", "y"}, 0, nil)
	kinds := map[string]int{}
	for _, b := range breaches(told.Check([]string{"x", "x"})) {
		kinds[b.Kind]++
	}
	if kinds["lost"] != 1 || kinds["twice"] != 1 {
		t.Errorf("the history's checker found %v", kinds)
	}
}
