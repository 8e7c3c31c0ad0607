package delta_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/delta"
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
