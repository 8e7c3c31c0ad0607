package storetest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/fencepost/fencepost/store"
)

// ranges: inside, up to the end, past the end, at the end and after it.
func ranges(s *suite) {
	body := newBody(1000)
	info := s.put(s.st(), "k", body, store.IfAbsent())
	for _, r := range []struct{ offset, length, end int64 }{
		{0, 0, 1000}, {0, 1, 1}, {0, 999, 999}, {0, 1000, 1000}, {0, 5000, 1000},
		{10, 20, 30}, {500, 0, 1000}, {500, 500, 1000}, {500, 501, 1000},
		{999, 0, 1000}, {999, 1, 1000}, {999, 1 << 40, 1000},
	} {
		what := fmt.Sprintf("Get from %d, %d bytes", r.offset, r.length)
		got, i, err := s.read(s.st(), "k", &store.GetOptions{Offset: r.offset, Length: r.length})
		if err != nil {
			s.Errorf("%s of 1000: %v", what, err)
			continue
		}
		if !bytes.Equal(got, body[r.offset:r.end]) {
			s.Errorf("%s of 1000: got %d bytes, want bytes %d to %d", what, len(got), r.offset, r.end)
		}
		s.checkInfo(what, i, "k", 1000)
		if i.Version != info.Version {
			s.Errorf("%s: version %q, want %q", what, i.Version, info.Version)
		}
	}
	for _, r := range []store.GetOptions{{Offset: -1}, {Length: -1}} {
		_, _, err := s.read(s.st(), "k", &r)
		s.wantError(fmt.Sprintf("Get from %d, %d bytes", r.Offset, r.Length), err, store.ErrInvalid)
	}
	for _, r := range []store.GetOptions{{Offset: 1000}, {Offset: 1000, Length: 1}, {Offset: 1001}, {Offset: 5000, Length: 10}} {
		_, _, err := s.read(s.st(), "k", &r)
		s.wantError(fmt.Sprintf("Get from %d, %d bytes of 1000", r.Offset, r.Length), err, store.ErrRange)
	}
	s.put(s.st(), "empty", nil, store.IfAbsent())
	if got, _, err := s.read(s.st(), "empty", &store.GetOptions{}); err != nil || len(got) != 0 {
		s.Errorf("Get of an empty object: %d bytes, %v", len(got), err)
	}
	for _, r := range []store.GetOptions{{Length: 1}, {Offset: 1}} {
		_, _, err := s.read(s.st(), "empty", &r)
		s.wantError(fmt.Sprintf("Get from %d, %d bytes of an empty object", r.Offset, r.Length), err, store.ErrRange)
	}
	_, _, err := s.read(s.st(), "missing", &store.GetOptions{Offset: 5, Length: 5})
	s.wantError("Get of a range of a missing key", err, store.ErrNotFound)
}

// notModified: IfNoneMatch.
func notModified(s *suite) {
	first, second := newBody(100), newBody(100)
	old := s.put(s.st(), "k", first, store.IfAbsent())
	unchanged := func(v store.Version, opts store.GetOptions) {
		s.Helper()
		opts.IfNoneMatch = v
		_, _, err := s.read(s.st(), "k", &opts)
		s.wantError("Get unless it is as known", err, store.ErrNotModified)
	}
	unchanged(old.Version, store.GetOptions{})
	unchanged(old.Version, store.GetOptions{Offset: 10, Length: 10})
	now := s.put(s.st(), "k", second, store.IfMatch(old.Version))
	got, info, err := s.read(s.st(), "k", &store.GetOptions{IfNoneMatch: old.Version})
	if err != nil || !bytes.Equal(got, second) || info.Version != now.Version {
		s.Errorf("Get of a changed object: version %q, %v; want the new one, %q", info.Version, err, now.Version)
	}
	unchanged(now.Version, store.GetOptions{})
	_, _, err = s.read(s.st(), "missing", &store.GetOptions{IfNoneMatch: now.Version})
	s.wantError("Get of a missing key unless it is as known", err, store.ErrNotFound)
}

// tornReads: a read during writes gets one whole body, with the version of that body.
func tornReads(s *suite) {
	const readers = 3
	const key = "k"
	writes := s.rounds(120, 50)
	sums := map[store.Version]uint32{}
	turns := map[uint32]int{} // which write it was, from 1
	body := summed()
	current := s.put(s.st(), key, body, store.IfAbsent())
	sums[current.Version], turns[sumOf(body)] = sumOf(body), 1

	type sight struct {
		version store.Version
		sum     uint32
	}
	var reads atomic.Int64
	var mu sync.Mutex
	sights := map[sight]bool{}
	stop := make(chan struct{})
	s.all(readers+1, func(i int) error {
		if i < readers {
			for {
				body, info, err := s.read(s.client(i), key, nil)
				switch {
				case err != nil:
					return fmt.Errorf("reading while it is swapped: %w", err)
				case int64(len(body)) != info.Size:
					return fmt.Errorf("reading while it is swapped: %d bytes of an object of %d", len(body), info.Size)
				case !whole(body):
					return errors.New("reading while it is swapped: a body put together from two writes")
				}
				mu.Lock()
				sights[sight{info.Version, sumOf(body)}] = true
				mu.Unlock()
				reads.Add(1)
				select {
				case <-stop:
					return nil
				default:
				}
			}
		}
		defer close(stop)
		// Until the readers have read often enough meanwhile.
		for w := 0; w < writes || reads.Load() < int64(writes) && w < 50*writes; w++ {
			body := summed()
			cond := store.IfMatch(current.Version)
			if w%5 == 0 {
				cond = store.Condition{}
			}
			info, err := s.client(i).Put(s.Context(), key, body, &store.PutOptions{If: cond})
			if err != nil {
				return fmt.Errorf("Put(%q, %v): %w", key, cond, err)
			}
			current = info
			sums[info.Version], turns[sumOf(body)] = sumOf(body), w+2
		}
		return nil
	})
	for seen := range sights {
		wrote, ok := turns[seen.sum] // of the body
		named, known := turns[sums[seen.version]]
		switch {
		case !ok || !known || named > wrote:
			s.Errorf("Get shows version %q with a body that was not written with it, nor later", seen.version)
		case named < wrote && !s.opts.OldVersions:
			s.Errorf("Get shows version %q with a body that was written later", seen.version)
		}
	}
	s.Logf("%d of %d states were read", len(sights), len(sums))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// summed returns a body of random size that ends in its checksum.
func summed() []byte {
	b := newBody(32 + rand.IntN(1<<(4+rand.IntN(15)))) // up to 256 KiB, small ones as often
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func sumOf(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.LittleEndian.Uint32(b[len(b)-4:])
}

func whole(b []byte) bool {
	return len(b) >= 4 && crc32.Checksum(b[:len(b)-4], castagnoli) == sumOf(b)
}
