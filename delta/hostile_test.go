package delta_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store/faultstore"
)

// isCommit reports whether an operation creates a version of the table.
func isCommit(op faultstore.Op) bool {
	return op.Kind == faultstore.Put && strings.Contains(op.Key, "_delta_log/") && strings.HasSuffix(op.Key, ".json")
}

// A publisher's caller gives up while a version is being created. The version is there all the
// same, and it names the publisher's pin: the publisher does not release that pin.
func TestPinOfAnUnknownCreate(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		st := faultstore.New(k.Mem, &faultstore.Options{Clock: clock.Go()})
		p := k.publisher(st, nil)
		a := k.rows(1)
		k.publish(p)
		time.Sleep(24 * time.Hour) // a pin is due
		k.compact()
		b := k.rows(1, a)
		ctx, cancel := context.WithCancel(context.Background())
		st.SetAfter(func(_ context.Context, op faultstore.Op, _ error) {
			if isCommit(op) {
				cancel()
			}
		})
		st.SetHook(func(op faultstore.Op) faultstore.Fault {
			if isCommit(op) {
				return faultstore.Fault{Err: faultstore.ErrTimeout} // the answer is lost
			}
			return faultstore.Fault{}
		})
		if _, err := p.Publish(ctx); !errors.Is(err, context.Canceled) {
			t.Fatalf("%v", err)
		}
		st.SetAfter(nil)
		st.SetHook(nil)
		held := slices.Max(k.pins()) // for version 2
		if text := string(k.Body(commitName(2))); !strings.Contains(text, fmt.Sprintf(`\"manifest\":%d,`, held)) {
			t.Fatalf("version 2 is %s, and pinned are %v", text, k.pins())
		}
		time.Sleep(24 * time.Hour) // another pin is due
		k.compact()
		k.rows(1, b)
		k.publish(p)
		if got := k.pins(); !slices.Contains(got, held) || slices.Max(got) == held {
			t.Errorf("version 2 is within the retention and holds manifest %d; pinned are %v", held, got)
		}
		time.Sleep(10 * 24 * time.Hour)
		k.compact()
		k.rows(1)
		k.publish(p)
		time.Sleep(10 * 24 * time.Hour)
		k.rows(1)
		k.publish(p)
		if got := k.pins(); slices.Contains(got, held) {
			t.Errorf("version 2 has left the retention; pinned are %v", got)
		}
	})
}
