package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"

	"github.com/fencepost/fencepost/store"
)

// cancelledBefore: a request whose context has ended before it begins gets an error. A write
// may have been sent all the same, so its outcome may be unknown. A certain outcome must be
// right.
func cancelledBefore(s *suite) {
	body := newBody(100)
	info := s.put(s.st(), "k", body, store.IfAbsent())
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	fails := func(what string, err error) {
		s.Helper()
		if err == nil {
			s.Errorf("%s with a cancelled context: no error", what)
		}
	}
	obj, err := s.st().Get(ctx, "k", nil)
	if err == nil {
		_ = obj.Body.Close()
	}
	fails("Get", err)
	err = nil
	for _, e := range s.st().List(ctx, "", nil) {
		err = e
	}
	fails("List", err)
	fails("Delete", s.st().Delete(ctx, "k"))
	if _, _, err := s.read(s.st(), "k", nil); err != nil && !errors.Is(err, store.ErrNotFound) {
		s.Errorf("Get after a cancelled Delete: %v", err)
	} else if err != nil {
		info = s.put(s.st(), "k", body, store.IfAbsent()) // it may have been sent
	}

	next := newBody(100)
	_, err = s.st().Put(ctx, "k", next, &store.PutOptions{If: store.IfMatch(info.Version)})
	s.honest("cancelled swap", "k", next, body, err)
	for i, cond := range []store.Condition{store.IfAbsent(), {}} {
		key := fmt.Sprintf("new/%d", i)
		_, err = s.st().Put(ctx, key, next, &store.PutOptions{If: cond})
		s.honest(fmt.Sprintf("cancelled Put %v", cond), key, next, nil, err)
	}
	_, err = s.st().Upload(ctx, "up", bytes.NewReader(next), &store.UploadOptions{Create: true})
	s.honest("cancelled Upload", "up", next, nil, err)
}

// cancelledDuring: the outcome of a write that was cancelled in flight agrees with what is
// stored, and the write can be settled.
func cancelledDuring(s *suite) {
	outcomes := map[store.Outcome]int{}
	old := newBody(100)
	current := s.put(s.st(), "swap", old, store.IfAbsent())
	for i := range s.rounds(150, 50) {
		swap := i%2 == 1
		key, cond, was := fmt.Sprintf("create/%d", i), store.IfAbsent(), []byte(nil)
		if swap {
			key, cond, was = "swap", store.IfMatch(current.Version), old
		}
		body := newBody(20_000)
		ctx, cancel := context.WithCancel(s.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			// Not by time, but after some steps of the scheduler. However fast the store is,
			// that is sometimes before, sometimes in and sometimes after the request.
			for range rand.IntN(1 << rand.IntN(14)) {
				runtime.Gosched()
			}
			cancel()
		}()
		_, err := s.client(i).Put(ctx, key, body, &store.PutOptions{If: cond})
		<-done
		outcomes[store.OutcomeOf(err)]++
		s.honest("Put cancelled on its way", key, body, was, err)
		// Settling writes the same bytes, so afterwards they are there.
		if swap {
			_, err = store.Swap(s.Context(), s.client(i+1), key, body, current.Version, nil)
		} else {
			_, err = store.Create(s.Context(), s.client(i+1), key, body, nil)
		}
		if err != nil {
			s.Fatalf("settling a cancelled Put of %q: %v", key, err)
		}
		info := s.wantBody(s.client(i+2), key, body)
		if swap {
			old, current = body, info
		}
	}
	s.Logf("outcomes: %v", outcomes)
}

// honest compares the outcome that the only writer of key was told with what is stored:
// body, or what was there before, nil for nothing.
func (s *suite) honest(what, key string, body, was []byte, err error) {
	s.Helper()
	got, _, getErr := s.read(s.client(1), key, nil)
	if getErr != nil && !errors.Is(getErr, store.ErrNotFound) {
		s.Fatalf("%s: Get(%q): %v", what, key, getErr)
	}
	applied := getErr == nil && bytes.Equal(got, body)
	untouched := getErr == nil && was != nil && bytes.Equal(got, was) || getErr != nil && was == nil
	switch o := store.OutcomeOf(err); {
	case !applied && !untouched:
		s.Errorf("%s: %q is neither what was written nor what was there", what, key)
	case o == store.Applied && !applied:
		s.Errorf("%s: it says applied, but it was not", what)
	case o == store.Refused:
		s.Errorf("%s: it says refused, but the condition held: %v", what, err)
	case o == store.Rejected:
		s.Errorf("%s: it says that the request is at fault: %v", what, err)
	}
}
