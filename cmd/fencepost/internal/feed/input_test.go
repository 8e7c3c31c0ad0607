package feed

import (
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
)

func all(t testing.TB, in *Input, limit, size int) (records [][]byte, err error) {
	t.Helper()
	for {
		b, err := in.Next(t.Context(), int64(limit), int64(size))
		if err != nil {
			return records, err
		}
		if len(b.Records) == 0 || b.To <= b.From {
			t.Fatalf("an empty batch: %+v", b)
		}
		records = append(records, b.Records...)
	}
}

func TestCut(t *testing.T) {
	for name, c := range map[string]struct {
		format  Format
		in      string
		limit   int
		want    []string
		err     error
		mention string
	}{
		"lines":                    {Lines, "a\nbc\n", 10, []string{"a\n", "bc\n"}, io.EOF, ""},
		"no newline at the end":    {Lines, "a\nbc", 10, []string{"a\n", "bc"}, io.EOF, ""},
		"nothing":                  {Lines, "", 10, nil, io.EOF, ""},
		"one newline":              {Lines, "\n", 10, []string{"\n"}, io.EOF, ""},
		"empty lines":              {Lines, "\n\na\n\n", 10, []string{"\n", "\n", "a\n", "\n"}, io.EOF, ""},
		"any bytes":                {Lines, "\x00\xff\r\n\r\n\xfe", 10, []string{"\x00\xff\r\n", "\r\n", "\xfe"}, io.EOF, ""},
		"as long as allowed":       {Lines, "1234\n12345", 5, []string{"1234\n", "12345"}, io.EOF, ""},
		"a line too long":          {Lines, "a\n12345\nb\n", 5, []string{"a\n"}, ErrTooLong, "at byte 2 of x has 6 bytes"},
		"the last line too long":   {Lines, "a\n123456", 5, []string{"a\n"}, ErrTooLong, "at byte 2 of x"},
		"frames":                   {Frames, "\x00\x00\x00\x01a\x00\x00\x00\x00\x00\x00\x00\x02\n\n", 10, []string{"a", "", "\n\n"}, io.EOF, ""},
		"no frames":                {Frames, "", 10, nil, io.EOF, ""},
		"a frame too long":         {Frames, "\x00\x00\x00\x01a\xff\xff\xff\xff", 10, []string{"a"}, ErrTooLong, "4294967295 bytes"},
		"cut in a frame":           {Frames, "\x00\x00\x00\x01a\x00\x00\x00\x03ab", 10, []string{"a"}, ErrCut, "at byte 5, 6 bytes before"},
		"cut in a frame's length":  {Frames, "\x00\x00\x00\x01a\x00\x00", 10, []string{"a"}, ErrCut, "at byte 5, 2 bytes before"},
		"a frame as long as ought": {Frames, "\x00\x00\x00\x02ab", 2, []string{"ab"}, io.EOF, ""},
	} {
		for way, r := range map[string]io.Reader{
			"whole": strings.NewReader(c.in), "bytewise": iotest.OneByteReader(strings.NewReader(c.in)), "with its end": iotest.DataErrReader(strings.NewReader(c.in)),
		} {
			t.Run(name+"/"+way, func(t *testing.T) {
				records, err := all(t, NewInput(r, "x", c.format), c.limit, 1000)
				if !errors.Is(err, c.err) || (c.mention != "" && !strings.Contains(err.Error(), c.mention)) {
					t.Errorf("ended with %v, want %v that mentions %q", err, c.err, c.mention)
				}
				var got []string
				for _, r := range records {
					got = append(got, string(r))
				}
				if strings.Join(got, "|") != strings.Join(c.want, "|") || len(got) != len(c.want) {
					t.Errorf("got %q, want %q", got, c.want)
				}
			})
		}
	}
}

func TestReadFailure(t *testing.T) {
	broken := errors.New("the disk is gone")
	records, err := all(t, NewInput(io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(broken)), "x", Lines), 10, 100)
	// The half line is not a record: its rest is unknown.
	if !errors.Is(err, broken) || len(records) != 1 || !strings.Contains(err.Error(), "reading x at byte 3") {
		t.Fatalf("%q, %v", records, err)
	}
}

// TestBatches: a batch does not wait for bytes that do not come, and is not
// larger than one object may be.
func TestBatches(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	in := NewInput(r, "x", Lines)
	if _, err := w.Write([]byte("a\nb\nhalf")); err != nil {
		t.Fatal(err)
	}
	b, err := in.Next(t.Context(), 100, 1000)
	if err != nil || len(b.Records) != 2 || b.To != 4 {
		t.Fatal(b, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the term is over")
	cancel(why)
	if _, err := in.Next(ctx, 100, 1000); !errors.Is(err, why) {
		t.Fatal(err)
	}
	in = NewInput(strings.NewReader(strings.Repeat("1234\n", 100)), "x", Lines)
	if b, err := in.Next(t.Context(), 5, 30); err != nil || len(b.Records) != 3 {
		t.Fatal(len(b.Records), err)
	}
	in = NewInput(strings.NewReader("12345678\n"), "x", Lines)
	if b, err := in.Next(t.Context(), 100, 5); err != nil || len(b.Records) != 1 {
		t.Fatal(len(b.Records), err)
	}
}

// TestSeek goes back and forth at random, and always reads what is there.
func TestSeek(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, 3*blockSize)
	for i := range data {
		data[i] = byte(r.IntN(256))
	}
	sum := func(n int64) uint32 { return crc32.Checksum(data[:n], castagnoli) }
	in := NewInput(iotest.HalfReader(bytes.NewReader(data)), "x", Lines)
	released := int64(0)
	for range 300 {
		switch r.IntN(4) {
		case 0:
			to := released + r.Int64N(in.at-released+1)
			if err := in.Seek(t.Context(), to, sum(to), func(int64) {}); err != nil {
				t.Fatal(err)
			}
			released = to
		case 1:
			to := min(in.at+r.Int64N(5000), int64(len(data)))
			if err := in.Seek(t.Context(), to, sum(to), func(int64) {}); err != nil {
				t.Fatal(err)
			}
			released = max(released, to) // skipped, so not kept
		case 2:
			if len(in.kept) > 0 {
				released = in.kept[r.IntN(len(in.kept))].To
				in.Release(released)
			}
		default:
			at := in.at
			b, err := in.Next(t.Context(), int64(len(data)), int64(len(data)))
			if errors.Is(err, io.EOF) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := bytes.Join(b.Records, nil); b.From != at || !bytes.Equal(got, data[b.From:b.To]) || b.sumTo != sum(b.To) {
				t.Fatalf("the batch from %d to %d differs", b.From, b.To)
			}
		}
	}
	if in.at == 0 {
		t.Fatal("nothing was read")
	}
}

func TestSeekErrors(t *testing.T) {
	none := func(int64) {}
	in := NewInput(strings.NewReader("a\nb\n"), "x", Lines)
	if err := in.Seek(t.Context(), 10, 0, none); !errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), "has only 4 bytes now, and 10 of it") {
		t.Error(err)
	}
	in = NewInput(strings.NewReader("a\nb\n"), "x", Lines)
	if err := in.Seek(t.Context(), 2, 1, none); !errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), "the first 2 bytes of x") {
		t.Error(err)
	}
	in = NewInput(strings.NewReader("a\nb\n"), "x", Lines)
	b, err := in.Next(t.Context(), 10, 10)
	if err != nil {
		t.Fatal(err)
	}
	in.Release(b.To)
	if err := in.Seek(t.Context(), 0, 0, none); !errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), "replaced") {
		t.Error(err)
	}
}

// TestSmallReadsKeepLittle: what a slow pipe brings in small pieces does not keep
// a block alive for each.
func TestSmallReadsKeepLittle(t *testing.T) {
	in := NewInput(iotest.OneByteReader(strings.NewReader(strings.Repeat("\n", 200))), "x", Lines)
	if _, err := all(t, in, 10, 1); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	kept := 0
	for _, b := range in.kept {
		kept += cap(b.raw)
	}
	if kept > 16*200 {
		t.Errorf("%d bytes are kept for 200", kept)
	}
}
