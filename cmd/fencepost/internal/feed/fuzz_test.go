package feed

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/fencepost/fencepost/internal/test"
)

// Whatever the input is, and however it is cut into reads: its records are its bytes, in
// order, up to where it ends or an error says that it cannot be cut; no record and no
// batch is larger than allowed.
func FuzzInput(f *testing.F) {
	f.Add([]byte("a\nb\n\nc"), false, uint8(10), uint8(20))
	f.Add([]byte("a long line that is too long\n"), false, uint8(5), uint8(20))
	f.Add([]byte("\x00\x00\x00\x01a\x00\x00\x00\x00\x00\x00\x00\x02b"), true, uint8(10), uint8(20))
	f.Add([]byte("\xff\xff\xff\xffa"), true, uint8(10), uint8(6))
	f.Fuzz(func(t *testing.T, b []byte, frames bool, limit, size uint8) {
		format := Lines
		if frames {
			format = Frames
		}
		read := func(r io.Reader) {
			in := NewInput(r, "x", format)
			var got []byte
			for {
				batch, err := in.Next(t.Context(), int64(limit), int64(size))
				if err != nil {
					whole := err == io.EOF //nolint:errorlint // as io's
					if !whole && !errors.Is(err, ErrTooLong) && !errors.Is(err, ErrCut) || !bytes.HasPrefix(b, got) || whole && len(got) != len(b) {
						t.Fatalf("%d of %d bytes, then %v", len(got), len(b), err)
					}
					break
				}
				total := 0
				if len(batch.Records) == 0 || batch.From != int64(len(got)) {
					t.Fatalf("%d records from %d, after %d", len(batch.Records), batch.From, len(got))
				}
				for _, rec := range batch.Records {
					if frames {
						got = binary.BigEndian.AppendUint32(got, uint32(len(rec)))
					}
					got = append(got, rec...)
					if len(rec) > int(limit) {
						t.Fatalf("a record of %d bytes, the limit is %d", len(rec), limit)
					}
					total += len(rec) + 1
				}
				if len(batch.Records) > 1 && total > int(size) || batch.To != int64(len(got)) {
					t.Fatalf("%d records of %d bytes up to %d, the limit is %d", len(batch.Records), total, batch.To, size)
				}
			}
			for in.end == nil && in.fill(t.Context()) == nil {
				continue // so that the reading goroutine ends
			}
		}
		for _, r := range []io.Reader{bytes.NewReader(b), iotest.OneByteReader(bytes.NewReader(b)), iotest.DataErrReader(bytes.NewReader(b))} {
			test.Affords(t, len(b), 512, 2*blockSize, func() { read(r) })
		}
	})
}

// A cursor that is accepted says the same when it is written again.
func FuzzDecodeCursor(f *testing.F) {
	for _, seed := range []string{"", "{}", "null", `{"source":"/x","format":"lines","offset":4711,"crc32c":7}`, `{"source":"x","format":"frames","offset":-1}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var c Cursor
		var ok bool
		test.Affords(t, len(b), 32, 64<<10, func() { c, ok = DecodeCursor(b) })
		if !ok {
			return
		}
		if got, ok := DecodeCursor(c.encode()); !ok || got != c || c.Offset < 0 || c.Source == "" {
			t.Errorf("%q: %+v became %+v", b, c, got)
		}
	})
}
