package delta_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/logtest"
)

// A log has records each day and no edit. What its compactor drops is deleted when the table's
// retention has passed, and the table has few versions for that.
//
// tuning:delta-idle-hold. Each Delta version names a pinned manifest for each log. A version without an
// edit can name a newer one. Without this rule: a log gets records every day, and no edit for a year;
// its compactor drops old records; the table's pin is a year old, and keeps all dropped records in the
// store.
func TestHoldOfALogWithoutEdits(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		p := k.publisher(nil, nil)
		q := k.publisher(nil, nil)
		file := k.rows(1)
		k.publish(p)
		most := 0
		const days = 60
		for n := range days {
			if _, err := k.w.Append(context.Background(), [][]byte{[]byte(fmt.Sprint("record ", n))}); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				k.Token++
				c, err := compactor.New(k.Mem, &compactor.Options{Token: fence.NewToken(k.Token), Settle: logtest.Quick, Clock: clock.Go(), Retain: compactor.Retain{Records: 2}})
				if err == nil {
					_, err = c.Once(context.Background())
				}
				if err != nil {
					t.Fatal(err)
				}
				k.publish(p)
				k.publish(q)
				time.Sleep(day / 2)
			}
			if n > days/2 {
				most = max(most, len(k.Keys("manifest/"))+len(k.Keys("segment/")))
			}
		}
		if !k.Has(file) {
			t.Error("the live file is gone")
		}
		r := k.publish(p)
		if versions := int(r.Version) - 1; versions < 2 || versions > days/7 {
			t.Errorf("%d versions without an edit in %d days", versions, days)
		}
		if got := k.pins(); len(got) > 3 {
			t.Errorf("pinned are %v", got)
		}
		kinds := map[string]int{}
		for _, key := range k.Keys("") {
			kind, _, _ := strings.Cut(key, "/")
			kinds[kind]++
		}
		t.Logf("%v; pins %v; at most %d manifests and segments; version %d", kinds, k.pins(), most, r.Version)
		if kinds["segment"] > 30 {
			t.Errorf("what was dropped long ago is still there: %v", kinds)
		}
	})
}

// Nothing happens in a log. Its table has no version for that.
func TestHoldOfAnIdleLog(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		p := k.publisher(nil, nil)
		k.rows(1)
		k.compact()
		k.publish(p)
		for range 30 {
			time.Sleep(day)
			if r := k.publish(p); r.Version > 2 { // one, for the writer has folded the edit
				t.Fatalf("%+v", r)
			}
		}
	})
}
