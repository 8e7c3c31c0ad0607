package iceberg_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/store"
)

// TestNextVersionIsKept: cleanup leaves alone what a publisher has written for a version that is not there yet, however old it is.
//
// guard:iceberg-clean. Without this check: a publisher has written the manifest of the next version, and not its metadata yet; another one takes
// the manifest for an orphan and deletes it; the first creates the version.
//
// guard:iceberg-listed-last. Without this check: cleanup deletes the manifest of a snapshot that the newest version lists; an engine
// that reads at that snapshot finds nothing.
func TestNextVersionIsKept(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		key := k.rows(1)
		p := k.publisher(nil, &delta.Options{Retention: time.Hour})
		for range 3 {
			key = k.rows(1, key)
			k.publish(p)
		}
		asleep := &hooked{Store: k.Mem}
		slow := k.publisher(asleep, nil)
		k.publish(slow)
		k.rows(1, key)
		asleep.before = func(string) {
			asleep.before = nil
			time.Sleep(30 * 24 * time.Hour)
			// Another one cleans up meanwhile, and creates no version.
			root, err := store.Sub(k.Mem, "file")
			if err != nil {
				t.Error(err)
				return
			}
			other := open(t, root)
			_, clean, err := other.Expire(context.Background(), other.s)
			if err == nil {
				err = clean(context.Background())
			}
			if err != nil {
				t.Error(err)
			}
		}
		k.publish(slow)
		time.Sleep(3 * time.Hour)
		k.publish(p)
		k.agree()
	})
}

// TestHintMovesFirst: the version that the hint names is there, although the publishers that move it die.
//
// guard:iceberg-hint-first. Without this check: a publisher dies before it moves the hint; another one deletes the version that the hint
// names; engines that begin at the hint find nothing.
func TestHintMovesFirst(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		deaf := &refusing{k.Mem, "version-hint"}
		key := k.rows(1)
		k.publish(k.publisher(nil, &delta.Options{Retention: time.Hour}))
		p := k.publisher(deaf, nil)
		for range 30 {
			key = k.rows(1, key)
			if _, err := p.Publish(context.Background()); err != nil && !strings.Contains(err.Error(), "version-hint") {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Minute)
		}
		hint, err := k.engine().body("file/metadata/version-hint.text")
		if err != nil || !slices.Contains(k.keys(), fmt.Sprintf("v%s.metadata.json", hint)) {
			t.Errorf("the hint names %s, of %v; %v", hint, k.keys(), err)
		}
		k.publish(k.publisher(nil, nil))
		k.agree()
	})
}

// TestSchemas: ids of columns stay, new columns get new ones, and files may lack columns or have them in another order.
func TestSchemas(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		type one struct {
			ID   int64  `parquet:"id"`
			Name string `parquet:"name"`
		}
		type two struct {
			More []string `parquet:"more,list"`
			Name string   `parquet:"name"`
			ID   int64    `parquet:"id"`
		}
		type three struct {
			Name string `parquet:"Name"`
		}
		p := k.publisher(nil, &delta.Options{Partition: []delta.Column{{Name: "day", Type: "date"}}})
		commit(k, []one{{1, "a"}}, map[string]string{"day": "2026-01-01"})
		k.publish(p)
		commit(k, []two{{[]string{"x"}, "b", 2}}, map[string]string{"day": ""})
		r := k.publish(p)
		d, err := k.engine().document(r.Also[0].Version)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range d.Schemas {
			for _, f := range s.Fields {
				got = append(got, fmt.Sprint(s.ID, " ", f.Name, " ", f.ID))
			}
		}
		if want := []string{"0 id 1", "0 name 2", "0 day 3", "1 id 1", "1 name 2", "1 day 3", "1 more 4"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if want := `[{"field-id":1,"names":["id"]},{"field-id":2,"names":["name"]},{"field-id":3,"names":["day"]},{"field-id":4,"names":["more"],"fields":[{"field-id":5,"names":["element","item","array_element","array"]}]}]`; d.Properties["schema.name-mapping.default"] != want || d.Properties["gc.enabled"] != "false" {
			t.Errorf("%v", d.Properties)
		}
		bad := commit(k, []three{{"c"}}, map[string]string{"day": "2026-01-01"})
		for _, value := range []string{"", "0000-01-01"} {
			r, err := p.Publish(context.Background())
			if err != nil || r.Err() == nil || r.Versions+r.Also[0].Versions != 0 || r.Also[0].Sources[0].Err == nil {
				t.Errorf("%q: %+v, %v", value, r, err)
			}
			if value == "" {
				if !strings.Contains(r.Err().Error(), "the column Name is called name") {
					t.Error(r.Err())
				}
				k.remove(bad)
				k.publish(p)
				bad = commit(k, []one{{3, "c"}}, map[string]string{"day": "0000-01-01"})
			} else if !strings.Contains(r.Err().Error(), "the partition column day, which is date") {
				t.Error(r.Err())
			}
		}
	})
}
