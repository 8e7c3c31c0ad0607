package backup

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/verify"
)

// A copy that is there already may be damaged. If its size is wrong, it was cut. What else has rotted is found when the copy is
// verified, which reads all of it; with Options.NoVerify nobody finds it. Of another history of the same log there is none: a
// backup notes where its chain ends, and the log must have had this place.

// manyFindings is how many damaged objects one reading of a copy tells, to be copied again before the next one.
const manyFindings = 1 << 20

// manyParts makes verify read none of what it may leave out: it checks documents, the chain, and that all else is
// there with its size.
const manyParts = 1 << 30

// checked verifies a copy, as st and second show it. What is damaged or missing is copied again, each object once: after
// that it is the source that is damaged.
func (t *transfer) checked(ctx context.Context, st, second store.Store) (*verify.Report, error) {
	for {
		v, keys, err := t.check(ctx, st, second)
		if len(keys) == 0 {
			return v, err
		}
		again := slices.DeleteFunc(keys, func(key string) bool {
			kind := inspect.Parse(key).Kind
			return kind == inspect.Unknown || kind == inspect.Format || t.healed[key]
		})
		if len(again) == 0 {
			return nil, err
		}
		slices.Sort(again)
		for _, key := range slices.Compact(again) {
			if herr := t.heal(ctx, key); errors.Is(herr, errNotOurs) {
				return nil, herr
			} else if herr != nil {
				return nil, fmt.Errorf("%w; and it cannot be copied again: %w", err, herr)
			}
		}
	}
}

// compared is how many bytes of an object tell it from others of its name. They have its nonce, which is random.
const compared = 512

// same refuses a copy of another history of the log, which an interrupted call may have begun. Of what such a copy could have
// under the names of the log's own objects, verify sees all but the manifest and the end of the chain: each object of the chain
// has a checksum of the one before it.
func (t *transfer) same(ctx context.Context, version uint64, end fence.Position) error {
	for _, n := range []inspect.Name{{Kind: inspect.Manifest, Number: version}, {Kind: inspect.Data, Slot: fence.Position{Epoch: end.Epoch, Seq: end.Seq - 1}}} {
		var heads [2][]byte
		for i, s := range []side{t.from, t.to} {
			b, _, err := store.Read(ctx, s.log, n.Key(), &store.ReadOptions{Length: compared})
			if ignore(ignore(err, store.ErrNotFound), store.ErrRange) != nil {
				return err
			}
			heads[i] = b
		}
		// What is folded may be pruned.
		if heads[0] == nil || heads[1] == nil || bytes.Equal(heads[0], heads[1]) {
			continue
		}
		body, info, err := store.Read(ctx, t.from.log, n.Key(), &store.ReadOptions{Limit: small})
		if err == nil {
			err = t.sound(n.Key(), body, info.Size)
		}
		if err == nil || errors.Is(err, store.ErrTooLarge) {
			err = fmt.Errorf("%s has another history of this log than %s: its %s has other content; give a place of its own", t.to.log.Traits().Name, t.from.log.Traits().Name, n.Key())
		}
		return err
	}
	return nil
}

// check verifies a copy once. Keys are the objects that are damaged or missing.
func (t *transfer) check(ctx context.Context, st, second store.Store) (v *verify.Report, keys []string, err error) {
	o := &verify.Options{Copy: true, Files: second, MaxFindings: manyFindings, Hooks: verify.Hooks{Progress: func(p verify.Progress) {
		if !t.NoVerify {
			t.Progress("verifying "+p.Stage, p.Done, p.Total)
		}
	}}}
	if t.NoVerify {
		o.Part, o.Parts, o.NoContent = 1, manyParts, true
	}
	v, err = verify.Run(ctx, st, o)
	if err != nil {
		return v, nil, err
	}
	for _, p := range v.Problems {
		if p.Key != "" {
			keys = append(keys, p.Key)
			err = cmp.Or(err, fmt.Errorf("%w: the copy in %s is not whole: %v", fence.ErrCorrupt, st.Traits().Name, p))
		}
	}
	if len(keys) == 0 && !v.OK() && !t.NoVerify { // such as a rule that was set meanwhile
		err = fmt.Errorf("the copy in %s cannot be relied on: %v", st.Traits().Name, v.Problems[0])
	}
	return v, keys, err
}

// originalError: the original of an object is damaged. It is not copied: it could replace the last sound copy.
type originalError struct {
	name, place, look string
	err               error
}

func (e *originalError) Error() string {
	return fmt.Sprintf("%s in %s is damaged, and was not copied from there: %v. Run `fencepost %s` on %s", e.name, e.place, e.err, e.look, e.place)
}

func (e *originalError) Unwrap() error { return e.err }

// heal copies an object over its damaged copy, and tells people. The last complete backup in the same place loses nothing by
// that, if it has this object too.
func (t *transfer) heal(ctx context.Context, key string) error {
	n, err := t.one(ctx, key, true)
	if err == nil {
		t.wasDamaged(key)
		t.done.Add(-n)
	}
	return err
}

// wasDamaged tells people about a copy that was replaced.
func (t *transfer) wasDamaged(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.healed[key] = true
	t.report.Healed = len(t.healed)
	name, place := t.to.where(key)
	t.Note("%s in %s is damaged; it was copied again", name, place)
}

// sound returns an originalError if an original that would replace a copy is damaged, as far as that can be told without its
// log. B is all of it, or nothing if it is large: verify reads the rest.
//
// A damaged original replaces no copy. Without this check: an object of the log is cut to half; the nightly
// backup finds that its copy has another size, and replaces it by the half; that copy was the last place that had
// the records of the other half.
func (t *transfer) sound(key string, b []byte, size int64) (err error) {
	t.mu.Lock()
	was := t.have[key]
	t.mu.Unlock()
	switch kind := inspect.Parse(key).Kind; {
	case size < was: // no object ever grows: of two that differ the shorter one is cut
		err = fmt.Errorf("%w: it has %d bytes, and its copy has %d", fence.ErrCorrupt, size, was)
	case kind == inspect.Data && b != nil:
		err = inspect.CheckData(b, t.limits)
	case kind == inspect.Manifest:
		err = document.Decode(key, b, new(struct{}))
	}
	if err == nil || !errors.Is(err, fence.ErrCorrupt) {
		return nil
	}
	name, place := t.from.where(key)
	return &originalError{name, place, t.look, err}
}
