package feed

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
)

// Format is how an input is cut into records.
type Format string

const (
	// Lines: a record is a line with its newline. The last one may have none.
	Lines Format = "lines"
	// Frames: each record follows its length, in 4 bytes, the most significant first.
	Frames Format = "frames"
)

const (
	blockSize = 256 << 10
	prefix    = 4 // of a frame
)

var (
	// ErrTooLong: a record is longer than the log allows.
	ErrTooLong = errors.New("record too long")
	// ErrCut: the input ends within a frame.
	ErrCut = errors.New("the input ends within a record")
)

// Input cuts a stream into batches of records. It keeps each batch until it is released,
// so that it can go back there.
type Input struct {
	name   string
	format Format
	blocks chan block
	closed chan struct{}

	rest []byte // read and not cut yet
	end  error  // why nothing comes after rest: io.EOF or a failure
	at   int64  // how many bytes of the input are before rest
	sum  uint32 // their CRC-32C
	kept []Batch
}

type block struct {
	b   []byte
	err error
}

// Batch is a run of records.
type Batch struct {
	Records [][]byte
	// From and To are the bytes of the source that it holds.
	From, To int64
	sumFrom  uint32
	sumTo    uint32
	raw      []byte
}

// NewInput reads r, which errors call name. The goroutine that reads ends when r does, after
// Close at the next read, or with the process: nothing can interrupt a read from a terminal.
func NewInput(r io.Reader, name string, format Format) *Input {
	in := &Input{name: name, format: format, blocks: make(chan block), closed: make(chan struct{})}
	go in.pump(r)
	return in
}

func (in *Input) pump(r io.Reader) {
	buf := make([]byte, blockSize)
	for {
		n, err := r.Read(buf)
		if n > 0 || err != nil {
			// Copy it: otherwise each small read from a pipe would keep a whole block in
			// memory until it is acknowledged.
			select {
			case in.blocks <- block{bytes.Clone(buf[:n]), err}:
			case <-in.closed:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// Close says that nobody reads the input any more.
func (in *Input) Close() { close(in.closed) }

// fill waits for more bytes.
func (in *Input) fill(ctx context.Context) error {
	select {
	case b := <-in.blocks:
		if len(in.rest) == 0 {
			in.rest = b.b
		} else {
			in.rest = append(in.rest, b.b...)
		}
		in.end = b.err
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Next returns the next batch: the records that have been read, at least one. A record has
// at most limit bytes. All records of a batch together, with their lengths, have at most
// size bytes (see frame.RecordSize). At the end of the input the error is io.EOF.
func (in *Input) Next(ctx context.Context, limit, size int64) (Batch, error) {
	for {
		b := Batch{From: in.at, sumFrom: in.sum}
		used, total := 0, 0
		for {
			rec, n, err := in.cut(in.rest[used:], limit)
			if err != nil && len(b.Records) == 0 {
				return Batch{}, err
			}
			// 5 bytes are the longest prefix of a record in an object.
			if n == 0 || err != nil || (len(b.Records) > 0 && int64(total+len(rec)+5) > size) {
				break
			}
			b.Records = append(b.Records, rec)
			used += n
			total += len(rec) + 5
		}
		if len(b.Records) > 0 {
			b.raw = in.rest[:used:used]
			in.rest = in.rest[used:]
			in.advance(b.raw)
			b.To, b.sumTo = in.at, in.sum
			in.kept = append(in.kept, b)
			return b, nil
		}
		if in.end != nil {
			return Batch{}, in.ended()
		}
		if err := in.fill(ctx); err != nil {
			return Batch{}, err
		}
	}
}

func (in *Input) ended() error {
	switch {
	case !errors.Is(in.end, io.EOF):
		return fmt.Errorf("reading %s at byte %d: %w", in.name, in.at+int64(len(in.rest)), in.end)
	case len(in.rest) > 0:
		return fmt.Errorf("%w: %s, at byte %d, %d bytes before its end", ErrCut, in.name, in.at, len(in.rest))
	}
	return io.EOF
}

// cut returns the first record of b, and how many bytes it takes; 0 if it is not complete.
func (in *Input) cut(b []byte, limit int64) (rec []byte, n int, err error) {
	tooLong := func(more string, size int64) error {
		return fmt.Errorf("%w: the one at byte %d of %s has %s%d bytes, the log allows %d; make the log with a larger --max-record", ErrTooLong, in.at, in.name, more, size, limit)
	}
	switch in.format {
	case Frames:
		if len(b) < prefix {
			return nil, 0, nil
		}
		size := int64(binary.BigEndian.Uint32(b))
		if size > limit {
			return nil, 0, tooLong("", size)
		}
		if n := prefix + int(size); len(b) >= n {
			return b[prefix:n:n], n, nil
		}
		return nil, 0, nil
	default:
		i := bytes.IndexByte(b, '\n')
		switch {
		case i >= 0:
			n = i + 1
		case errors.Is(in.end, io.EOF):
			n = len(b)
		}
		switch {
		case int64(n) > limit:
			return nil, 0, tooLong("", int64(n))
		case n == 0 && int64(len(b)) > limit:
			return nil, 0, tooLong("at least ", int64(len(b)))
		}
		return b[:n:n], n, nil
	}
}

func (in *Input) advance(b []byte) {
	in.at += int64(len(b))
	in.sum = crc32.Update(in.sum, castagnoli, b)
}

// Release forgets the batches that end at or before a byte.
func (in *Input) Release(to int64) {
	i := 0
	for i < len(in.kept) && in.kept[i].To <= to {
		in.kept[i] = Batch{} // the array stays for a while
		i++
	}
	in.kept = in.kept[i:]
}

// Seek goes to a byte: back, if it has not been released, or forward over bytes that
// another process has appended. It releases everything before that byte, and checks that
// it has the sum that the cursor says. Progress may be nil.
func (in *Input) Seek(ctx context.Context, to int64, sum uint32, progress func(int64)) error {
	if to < in.at {
		i := slices.IndexFunc(in.kept, func(b Batch) bool { return b.From <= to && to < b.To })
		if i < 0 {
			return fmt.Errorf("%w: the log is at byte %d of %s, and everything up to %d was acknowledged; has the log been replaced?", ErrChanged, to, in.name, in.at)
		}
		first := in.kept[i]
		var all []byte
		for _, b := range in.kept[i:] {
			all = append(all, b.raw...)
		}
		in.rest = append(all, in.rest...)
		in.at, in.sum = first.From, first.sumFrom
	}
	in.kept = nil
	for in.at < to {
		if len(in.rest) == 0 {
			if in.end != nil {
				if err := in.ended(); !errors.Is(err, io.EOF) {
					return err
				}
				return fmt.Errorf("%w: %s has only %d bytes now, and %d of it are in the log", ErrChanged, in.name, in.at, to)
			}
			if err := in.fill(ctx); err != nil {
				return err
			}
			continue
		}
		n := int(min(int64(len(in.rest)), to-in.at))
		in.advance(in.rest[:n])
		in.rest = in.rest[n:]
		if progress != nil {
			progress(in.at)
		}
	}
	if in.sum != sum {
		return fmt.Errorf("%w: the first %d bytes of %s are not those in the log (CRC-32C %08x, not %08x); if it is other data, give it another --source and another log",
			ErrChanged, to, in.name, in.sum, sum)
	}
	return nil
}
