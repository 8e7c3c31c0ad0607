package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/fencepost/fencepost/store"
)

const mib = 1 << 20

// bodies: bodies of any size, which the driver does not keep after Put.
func bodies(s *suite) {
	for _, size := range []int{0, 1, 4096, 65537, 5 * mib} {
		key := fmt.Sprintf("size/%d", size)
		body := newBody(size)[:size]
		info := s.put(s.st(), key, body, store.IfAbsent())
		s.wantBody(s.client(1), key, body)
		s.wantListed(s.client(2), "size/", map[string]store.Info{key: info})
		next := newBody(size)[:size]
		s.put(s.client(1), key, next, store.IfMatch(info.Version))
		s.wantBody(s.st(), key, next)
		if err := s.st().Delete(s.Context(), key); err != nil {
			s.Fatalf("Delete: %v", err)
		}
	}
	// The caller reuses its buffer.
	buf := newBody(3000)
	was := bytes.Clone(buf)
	first := s.put(s.st(), "buf", buf, store.IfAbsent())
	clear(buf)
	s.wantBody(s.st(), "buf", was)
	copy(buf, newBody(3000))
	was = bytes.Clone(buf)
	s.put(s.st(), "buf", buf, store.IfMatch(first.Version))
	clear(buf)
	s.wantBody(s.st(), "buf", was)
}

// stream is size pseudo-random bytes, in pieces of odd sizes. At byte at it calls do, if
// that is set, and ends with its error.
type stream struct {
	random   *rand.ChaCha8
	size, at int
	pos      int
	do       func() error
}

func newStream(seed byte, size int) *stream {
	return &stream{random: rand.NewChaCha8([32]byte{seed}), size: size}
}

func (r *stream) Read(p []byte) (int, error) {
	if r.do != nil && r.pos >= r.at {
		do := r.do
		r.do = nil
		if err := do(); err != nil {
			return 0, err
		}
	}
	if r.pos == r.size {
		return 0, io.EOF
	}
	n := min(len(p), r.size-r.pos, 64<<10-7)
	_, _ = r.random.Read(p[:n]) // however it is cut, the stream is the same
	r.pos += n
	return n, nil
}

// wantStream expects the object to be the stream of that seed and size.
func (s *suite) wantStream(st store.Store, key string, seed byte, size int) store.Info {
	s.Helper()
	obj, err := st.Get(s.Context(), key, nil)
	if err != nil {
		s.Fatalf("Get(%q): %v", key, err)
	}
	defer obj.Body.Close()
	s.checkInfo("Get", obj.Info, key, int64(size))
	want := newStream(seed, size)
	got, exp := make([]byte, 64<<10), make([]byte, 64<<10)
	for pos := 0; ; {
		n, err := io.ReadFull(obj.Body, got)
		m, _ := io.ReadFull(want, exp)
		if !bytes.Equal(got[:n], exp[:m]) {
			s.Fatalf("Get(%q): differs from what was uploaded after %d bytes of %d", key, pos, size)
		}
		pos += n
		switch err {
		case nil:
		case io.EOF, io.ErrUnexpectedEOF:
			return obj.Info
		default:
			s.Fatalf("Get(%q): after %d bytes of %d: %v", key, pos, size, err)
		}
	}
}

// uploads: bodies of sizes around those of parts, with right and wrong hints.
func uploads(s *suite) {
	sizes := []int{0, 1, 5*mib - 1, 5 * mib, 5*mib + 1, 8 * mib, 16 * mib, 16*mib + 1, 17*mib + 3}
	if s.opts.Quick {
		sizes = []int{0, 1, 5 * mib, 8*mib + 1, 17*mib + 3}
	}
	want := map[string]store.Info{}
	for i, size := range sizes {
		opts := []*store.UploadOptions{nil, {}, {Create: true}, {SizeHint: int64(size)}, {Create: true, SizeHint: 1}}[i%5]
		key := fmt.Sprintf("u/%d", size)
		info, err := s.client(i).Upload(s.Context(), key, newStream(byte(i), size), opts)
		if err != nil {
			s.Errorf("Upload of %d bytes: %v", size, err)
			continue
		}
		s.checkInfo("Upload", info, key, int64(size))
		got := s.wantStream(s.client(i+1), key, byte(i), size)
		if got.Version != info.Version && !s.opts.UploadVersions {
			s.Errorf("Upload of %d bytes says version %q, Get %q", size, info.Version, got.Version)
		}
		want[key] = got
	}
	_, err := s.st().Upload(s.Context(), "hint", newStream(1, 10), &store.UploadOptions{SizeHint: 100 * mib, Create: true})
	if err != nil {
		s.Errorf("Upload of 10 bytes that was to have 100 MiB: %v", err)
	} else {
		s.wantStream(s.st(), "hint", 1, 10)
	}
	s.wantListed(s.st(), "u/", want)
	// An uploaded object is an object: it can be swapped.
	if info, ok := want["u/1"]; ok {
		s.put(s.st(), "u/1", newBody(30), store.IfMatch(info.Version))
	}
}

// uploadInvisible: nothing is visible while the body is still being read.
func uploadInvisible(s *suite) {
	body := newStream(1, 12*mib)
	body.at = 11 * mib
	body.do = func() error {
		s.wantAbsent(s.client(1), "u")
		s.wantListed(s.client(1), "", nil)
		return nil
	}
	if _, err := s.st().Upload(s.Context(), "u", body, &store.UploadOptions{Create: true}); err != nil {
		s.Fatalf("Upload: %v", err)
	}
	s.wantStream(s.client(1), "u", 1, 12*mib)
}

// uploadFailing: a body that cannot be read leaves the key as it was.
func uploadFailing(s *suite) {
	errBody := errors.New("the body breaks off")
	for _, at := range []int{0, 1000, 5 * mib, 11 * mib} {
		for _, create := range []bool{true, false} {
			body := newStream(1, 12*mib)
			body.at, body.do = at, func() error { return errBody }
			key := fmt.Sprintf("u/%d/%v", at, create)
			if _, err := s.st().Upload(s.Context(), key, body, &store.UploadOptions{Create: create}); !errors.Is(err, errBody) {
				s.Errorf("Upload of a body that breaks off after %d bytes: %v does not say why", at, err)
			}
			s.wantAbsent(s.client(1), key)
		}
	}
	s.wantListed(s.client(1), "", nil)

	// An upload that is cancelled while it runs is there whole, or not at all.
	for _, at := range []int{1000, 11 * mib} {
		key := fmt.Sprintf("cancelled/%d", at)
		ctx, cancel := context.WithCancel(s.Context())
		body := newStream(1, 12*mib)
		body.at, body.do = at, func() error { cancel(); return nil }
		_, err := s.st().Upload(ctx, key, body, &store.UploadOptions{Create: true})
		cancel()
		switch _, _, getErr := s.read(s.client(1), key, nil); {
		case getErr == nil:
			s.wantStream(s.client(1), key, 1, 12*mib)
		case err == nil:
			s.Errorf("a cancelled Upload says that it succeeded, but Get says %v", getErr)
		default:
			s.wantError("Get after a cancelled Upload", getErr, store.ErrNotFound)
		}
		if o := store.OutcomeOf(err); o == store.Refused {
			s.Errorf("a cancelled Upload of a new key says that its condition did not hold: %v", err)
		}
	}
}

// uploadCreate: an Upload with Create does not replace an object.
func uploadCreate(s *suite) {
	sizes := []int{0, 100, 17 * mib}
	if s.opts.UploadOverwrites {
		sizes = sizes[:2]
	}
	for _, size := range sizes {
		key := fmt.Sprintf("u/%d", size)
		body := newBody(100)
		info := s.put(s.st(), key, body, store.IfAbsent())
		_, err := s.client(1).Upload(s.Context(), key, newStream(1, size), &store.UploadOptions{Create: true})
		s.wantError(fmt.Sprintf("Upload with Create of %d bytes onto an object", size), err, store.ErrPrecondition)
		if got := s.wantBody(s.client(2), key, body); got.Version != info.Version {
			s.Errorf("a refused Upload changed the version from %q to %q", info.Version, got.Version)
		}
	}
}
