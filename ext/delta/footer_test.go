package delta_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store/faultstore"
)

// parquetWith returns a file of some rows, whose footer has a certain size with the eight bytes that end
// it, and where that footer's size is in the file.
func parquetWith(t *testing.T, footer, rows int) []byte {
	t.Helper()
	pad := 0
	for range 8 { // the size of the padding's own length changes with it
		var b bytes.Buffer
		w := parquet.NewGenericWriter[order](&b, parquet.KeyValueMetadata("pad", strings.Repeat("x", pad)), parquet.MaxRowsPerRowGroup(1000))
		for i := range rows {
			if _, err := w.Write([]order{{ID: int64(i) - 7, Name: fmt.Sprintf("order %06d", i), Sum: float64(i)}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		body := b.Bytes()
		have := int(binary.LittleEndian.Uint32(body[len(body)-8:])) + 8
		if have == footer {
			return body
		}
		pad += footer - have
	}
	t.Fatalf("there is no padding for a footer of %d bytes", footer)
	return nil
}

// A publisher reads the last 64 KiB of a file. It reads a larger footer by a second request, and takes
// the same statistics from it.
func TestLargeFooters(t *testing.T) {
	const guess = 64 << 10
	for _, c := range []struct{ footer, gets int }{{guess - 1, 1}, {guess, 1}, {guess + 1, 2}, {guess + 8, 2}, {2*guess - 1, 2}, {1 << 20, 2}} {
		t.Run(fmt.Sprint(c.footer), func(t *testing.T) {
			inLake(t, func(t *testing.T, k *lake) {
				st := faultstore.New(k.Mem, &faultstore.Options{Clock: clock.Go()})
				p := k.publisher(st, nil)
				k.raw(parquetWith(t, c.footer, 5000), nil)
				r := k.publish(p)
				if n := st.Counts().Of(faultstore.Get, "file/0"); n != c.gets {
					t.Errorf("%d requests for the footer, want %d", n, c.gets)
				}
				want := `{"numRecords":5000,"minValues":{"id":-7,"name":"order 000000"},"maxValues":{"id":4992,"name":"order 004999"},"nullCount":{"id":0,"name":0,"sum":0}}`
				if got := k.actions(r.Version, "add")[0]["stats"]; got != want {
					t.Errorf("the statistics are %s, want %s", got, want)
				}
			})
		})
	}
}
