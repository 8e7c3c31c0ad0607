package delta_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/internal/test/logtest"
)

// A file cannot be in the table, and an edit removes it, at once or some edits later. The edits from the
// one to the other are one version, and the others have versions of their own.
func TestBadFileThatIsRemoved(t *testing.T) {
	type other struct {
		ID string `parquet:"id"`
	}
	for name, bad := range map[string]func(k *lake) string{
		"no Parquet":      func(k *lake) string { return k.raw([]byte("just some text, long enough"), nil) },
		"too short":       func(k *lake) string { return k.raw([]byte("x"), nil) },
		"another type":    func(k *lake) string { return commitRows(k, []other{{"x"}}) },
		"the partition's": func(k *lake) string { return k.raw(k.Body("file/"+k.live()[0]), map[string]string{"day": "x"}) },
	} {
		for between := range 3 {
			t.Run(fmt.Sprint(name, " ", between), func(t *testing.T) {
				inLake(t, func(t *testing.T, k *lake) {
					p := k.publisher(nil, &delta.Options{Partition: []delta.Column{{Name: "day", Type: "date"}}})
					k.rows(1)
					k.publish(p)
					k.rows(1)
					key := bad(k)
					for range between {
						k.rows(1)
					}
					for range 2 {
						if r, err := p.Publish(t.Context()); err != nil || r.Err() == nil || !strings.Contains(r.Err().Error(), strings.TrimPrefix(key, "file/")) {
							t.Fatalf("%+v, %v", r, err)
						}
					}
					k.rows(1, key)
					k.rows(1)
					r := k.publish(p)
					if edits := uint64(5 + between); r.Version != 4 || r.Sources[0].Published != edits || r.Sources[0].Edits != edits {
						t.Errorf("%+v", r)
					}
					if got := k.version(r.Version).paths(); !slices.Equal(got, k.live()) {
						t.Errorf("the table has %v, and the log %v", got, k.live())
					}
					k.rows(1)
					if r := k.publish(p); r.Version != 5 {
						t.Errorf("%+v", r)
					}
				})
			})
		}
	}
}

// Of two files that cannot be in the table one is removed. The error names the other one.
func TestOneOfTwoBadFilesIsRemoved(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		p := k.publisher(nil, nil)
		k.rows(1)
		k.publish(p)
		first, second := k.raw([]byte("just some text, long enough"), nil), k.raw([]byte("more such text, long enough"), nil)
		k.rows(1, first)
		r, err := p.Publish(t.Context())
		if err != nil || !errors.Is(r.Err(), delta.ErrSource) || !strings.Contains(r.Err().Error(), strings.TrimPrefix(second, "file/")) {
			t.Errorf("%+v, %v", r, err)
		}
		k.rows(1, second)
		if r := k.publish(p); r.Version != 2 || r.Files != len(k.live()) {
			t.Errorf("%+v", r)
		}
	})
}

// claim is a Parquet file whose schema claims to have two billion elements.
const claim = "PAR1\x15\x02\x19\xfc\xff\xff\xff\xff\x07\x00\x00\x00\x00\x00\x00\x0f\x00\x00\x00PAR1"

// A file claims more than it has. Nobody runs out of memory: a leader that is given the file leaves it
// out, and goes on; a publisher names it, publishes the other source, and goes on when an edit has
// removed it.
func TestFileThatClaimsMore(t *testing.T) {
	if !delta.InChild(t) {
		return
	}
	inLake(t, func(t *testing.T, k *lake) {
		p := k.publisher(nil, nil)
		k.rows(1)
		k.publish(p)
		w, err := delta.NewWriter[order](t.Context(), k.w, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		if err := w.WriteParquet(t.Context(), strings.NewReader(claim), int64(len(claim)), nil); err == nil || !strings.Contains(err.Error(), "no Parquet file") {
			t.Errorf("%v", err)
		}
		if err := errors.Join(w.Write(t.Context(), []order{{ID: 9}}), w.Commit(t.Context())); err != nil {
			t.Fatal(err)
		}
		key := k.raw([]byte(claim), nil)
		for range 2 {
			if r, err := p.Publish(t.Context()); err != nil || !errors.Is(r.Err(), delta.ErrSource) || !strings.Contains(r.Err().Error(), strings.TrimPrefix(key, "file/")) {
				t.Fatalf("%+v, %v", r, err)
			}
		}
		k.rows(1, key)
		if r := k.publish(p); r.Files != len(k.live()) {
			t.Errorf("%+v", r)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		root, sources, all := fleet(t, 2)
		p, err := delta.Open(t.Context(), root, sources, &delta.Options{Settle: logtest.Quick, Clock: clock.Go()})
		if err != nil {
			t.Fatal(err)
		}
		commitTo(t, all[1], []order{{ID: 1}})
		bad := &lake{Log: &logtest.Log{TB: t}, w: all[0]}
		bad.raw([]byte(claim), nil)
		if r, err := p.Publish(t.Context()); err != nil || r.Files != 1 || !errors.Is(r.Sources[0].Err, delta.ErrSource) || r.Sources[1].Err != nil {
			t.Errorf("%+v, %v", r, err)
		}
	})
}
