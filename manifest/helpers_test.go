package manifest

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/document"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/store/probe"
)

var golden = flag.Bool("golden", false, "write the golden files")
var (
	testLog  = fence.ID{0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f}
	testTime = time.Date(2024, 2, 29, 12, 34, 56, 789000000, time.UTC)
)

func testFormat() Format {
	return Format{Version: document.Format, Log: testLog, Created: testTime.Truncate(time.Second), Limits: DefaultLimits(), Grace: Duration(DefaultGrace)}
}

// quick lets nobody wait for a store that is in memory.
var quick = &store.SettleOptions{Backoff: time.Microsecond, MaxBackoff: time.Microsecond, Reads: 100}

// quickProbe does each test once: what is tested here is who calls it.
var quickProbe = &probe.Options{Clients: 2, Rounds: 1, Keys: 1, UploadSize: 1}

// newFaults returns a faulty store and the store that it wraps.
func newFaults(opts *faultstore.Options) (*faultstore.Store, *memstore.Store) {
	inner := memstore.New(nil)
	return faultstore.New(inner, opts), inner
}

// put writes an object without any condition, as no program of ours does.
func put(t testing.TB, st store.Store, key string, body []byte) {
	t.Helper()
	if _, err := st.Put(context.Background(), key, body, nil); err != nil {
		t.Fatal(err)
	}
}

// wantErr fails the test unless err is kind and says text.
func wantErr(t *testing.T, err, kind error, text string) {
	t.Helper()
	if !errors.Is(err, kind) || !strings.Contains(err.Error(), text) {
		t.Errorf("error is %v, want one that is %q and says %q", err, kind, text)
	}
}

// asJSON shows what a manifest says, whatever its pointers are.
func asJSON(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func goldenFile(t testing.TB, name string, now []byte) []byte {
	t.Helper()
	name = "testdata/" + name
	if *golden {
		if err := os.WriteFile(name, now, 0o644); err != nil { //nolint:gosec // a file of the repository
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(name) //nolint:gosec // likewise
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func known(err error) bool {
	return errors.Is(err, fence.ErrCorrupt) || errors.Is(err, fence.ErrFormat)
}
