package iceberg_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/store"
)

// TestBothFormats: both tables have the same files at each number of edits that is published.
func TestBothFormats(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		p := k.publisher(nil, nil)
		var keys []string
		for i := range 40 {
			switch {
			case i%7 == 6:
				keys = append(keys, k.rows(2, keys[0], keys[2]))
				keys = slices.Delete(slices.Delete(keys, 2, 3), 0, 1)
			case i%9 == 8:
				k.remove(keys[1])
				keys = slices.Delete(keys, 1, 2)
			default:
				keys = append(keys, k.rows(3))
			}
			if i%3 != 1 {
				k.publish(p)
			}
			if i%10 == 9 {
				k.compact()
			}
		}
		r := k.publish(p)
		if r.Format != "delta" || len(r.Also) != 1 || r.Also[0].Format != "iceberg" || r.Also[0].Sources[0].Published != r.Sources[0].Published {
			t.Fatalf("%+v", r)
		}
		e := k.engine()
		d, err := e.document(r.Also[0].Version)
		if err != nil {
			t.Fatal(err)
		}
		byEdits, found := k.deltaAt(), 0
		for _, s := range d.Snapshots {
			edits, err := strconv.ParseUint(s.Summary["fencepost.edits"], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			got, err := e.files(d, s.ID)
			if err != nil {
				t.Fatal(err)
			}
			if want, ok := byEdits[edits]; !ok || !slices.Equal(got, want) {
				t.Errorf("after %d edits Iceberg has %v, and Delta %v", edits, got, want)
			}
			if s.Summary["total-data-files"] != strconv.Itoa(len(got)) || s.Summary["fencepost.log"] == "" || s.Summary["fencepost.epoch"] == "" {
				t.Errorf("%d files: %v", len(got), s.Summary)
			}
			found++
		}
		if want := k.live(); found < 30 || !slices.Equal(byEdits[r.Sources[0].Edits], want) {
			t.Errorf("%d snapshots; the log has %v", found, want)
		}
		// A publisher that begins with nothing reads the same state.
		if r := k.publish(k.publisher(nil, nil)); r.Versions != 0 || r.Also[0].Versions != 0 {
			t.Errorf("a second publisher has created %+v", r)
		}
	})
}

// TestSecondFormat: a format that is added later, without options, is partitioned as the first is.
//
// guard:table-same-partitions. Without this check: a table is published as Delta, partitioned by day; later somebody adds Iceberg and leaves
// out the partitions; the Iceberg table has no column day, and gets none ever, since the files lack it.
func TestSecondFormat(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		by := []delta.Column{{Name: "day", Type: "date"}}
		commit(k, []order{{1, "a"}}, map[string]string{"day": "2026-11-23"})
		k.publish(k.publisher(nil, &delta.Options{Formats: []delta.Format{delta.Lake()}, Partition: by, Retention: time.Hour}))
		broken := &deaf{k.Mem, "file/_delta_log/"}
		if _, err := k.publisher(broken, nil).Publish(context.Background()); err == nil || len(k.keys()) > 0 {
			t.Errorf("the first table cannot be read: %v, and there are %v", err, k.keys())
		}
		k.publish(k.publisher(nil, nil))
		d, err := k.engine().document(1)
		if err != nil {
			t.Fatal(err)
		}
		last := d.Schemas[0].Fields[len(d.Schemas[0].Fields)-1]
		if last.Name != "day" || string(last.Type) != `"date"` || d.Properties["fencepost.retention-seconds"] != "3600" {
			t.Errorf("%+v", d)
		}
	})
}

// deaf refuses to list what begins with a prefix.
type deaf struct {
	store.Store
	prefix string
}

func (d *deaf) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	if strings.HasPrefix(prefix, d.prefix) {
		return func(yield func(store.Info, error) bool) { yield(store.Info{}, &store.Error{Err: store.ErrDenied}) }
	}
	return d.Store.List(ctx, prefix, opts)
}

// TestOtherFormat: who looks at one table of two is not told to delete the other.
func TestOtherFormat(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		k.rows(1)
		k.publish(k.publisher(nil, nil))
		for _, f := range both() {
			p := k.publisher(nil, &delta.Options{Formats: []delta.Format{f}, Hooks: delta.Hooks{Foreign: func(f delta.Foreign) { t.Errorf("%s: %s", f.Key, f.What) }}})
			if _, err := p.Status(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestFieldIDs: a file with field ids is refused, for both formats.
//
// guard:iceberg-no-ids. Without this check: a program writes files with field ids of its own; engines take the columns by these, and not by their names;
// they show the values of one column under the name of another.
func TestFieldIDs(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		k.rows(1)
		p := k.publisher(nil, nil)
		k.publish(p)
		bad := commit(k, []struct {
			ID   int64  `parquet:"id,id(2)"`
			Name string `parquet:"name,id(1)"`
		}{{2, "b"}}, nil)
		r, err := p.Publish(context.Background())
		if err = errors.Join(err, r.Err()); !errors.Is(err, delta.ErrSchema) || !strings.Contains(err.Error(), "the column id has a field id") || r.Sources[0].Published != 1 {
			t.Errorf("%+v, %v", r, err)
		}
		k.rows(1, bad)
		k.publish(p)
		k.agree()
	})
}
