package storetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fencepost/fencepost/store"
)

// listAndDeleteMany: listings and deletes of more keys than one request takes.
func listAndDeleteMany(s *suite) {
	const workers = 16
	many := s.rounds(2100, 1100) // more than two pages of a listing in most stores, or than one
	var mu sync.Mutex
	all := map[string]store.Info{}
	create := func(i int, key string) error {
		info, err := s.client(i).Put(s.Context(), key, newBody(20), &store.PutOptions{If: store.IfAbsent()})
		if err != nil {
			return fmt.Errorf("Put(%q): %w", key, err)
		}
		mu.Lock()
		defer mu.Unlock()
		all[key] = info
		return nil
	}
	s.all(workers, func(w int) error {
		for i := w; i < many; i += workers {
			// Two in three are flat, with names of several lengths; the others are deeper. No
			// key is another's directory, which not every store allows.
			key := fmt.Sprintf("a/%020d", i)
			switch i % 6 {
			case 0:
				key = fmt.Sprintf("a/%d", i)
			case 1:
				key = fmt.Sprintf("a/%020d/%d", many+i%7, i)
			}
			if err := create(w, key); err != nil {
				return err
			}
		}
		return nil
	})
	for i := range 5 {
		if err := create(i, fmt.Sprintf("ab/%d", i)); err != nil {
			s.Fatalf("%v", err)
		}
	}
	under := func(prefix string) map[string]store.Info {
		m := maps.Clone(all)
		maps.DeleteFunc(m, func(key string, _ store.Info) bool { return !strings.HasPrefix(key, prefix) })
		return m
	}
	for i, prefix := range []string{"a/", "ab/", "", fmt.Sprintf("a/%020d/", many+1), "none/"} {
		s.wantListed(s.client(i), prefix, under(prefix))
	}

	keys := slices.Sorted(maps.Keys(under("a/")))
	listParts(s, keys)
	doomed := slices.Clone(keys[50 : len(keys)-40]) // more than one request of S3 takes
	for _, key := range doomed {
		delete(all, key)
	}
	doomed = append(doomed, "a/missing", "missing/too", doomed[0])
	if err := s.st().Delete(s.Context(), doomed...); err != nil {
		s.Fatalf("Delete of %d keys: %v", len(doomed), err)
	}
	s.wantListed(s.client(1), "a/", under("a/"))
	s.wantListed(s.client(2), "", all)
	for _, key := range doomed[:20] {
		s.wantAbsent(s.client(3), key)
	}
}

// listParts lists keys, which are all that begin with a/, from some of them on, and stops in
// the middle.
func listParts(s *suite, keys []string) {
	for _, after := range []string{keys[0], keys[10], keys[len(keys)/2], keys[len(keys)/2] + "!", keys[len(keys)-2], keys[len(keys)-1], "a/", "a"} {
		found := s.list(s.st(), "a/", &store.ListOptions{StartAfter: after})
		lost := 0
		for _, key := range keys {
			if _, ok := found[key]; key > after && !ok {
				lost++
			}
		}
		if lost > 0 {
			s.Errorf("List after %q drops %d keys that are greater", after, lost)
		}
		for key := range found {
			if !strings.HasPrefix(key, "a/") {
				s.Errorf("List after %q yields %q, which is not under the prefix", after, key)
			}
		}
	}

	// A listing that the caller ends early does not disturb the next one.
	n := 0
	for _, err := range s.st().List(s.Context(), "a/", nil) {
		if err != nil {
			s.Fatalf("List: %v", err)
		}
		if n++; n == 7 {
			break
		}
	}
}

// listBasics: a prefix is made of whole parts, and a listing shows exactly what is there.
func listBasics(s *suite) {
	s.wantListed(s.st(), "", nil)
	all := map[string]store.Info{}
	for _, key := range []string{"x/1", "x/y/2", "x/y/z/3", "xy/4", "x.y/5", "6"} {
		all[key] = s.put(s.st(), key, newBody(len(key)+20), store.IfAbsent())
	}
	for _, prefix := range []string{"", "x/", "x/y/", "x/y/z/", "xy/", "y/", "6/", "x/1/"} {
		want := map[string]store.Info{}
		for key, info := range all {
			if strings.HasPrefix(key, prefix) {
				want[key] = info
			}
		}
		s.wantListed(s.st(), prefix, want)
	}
	for _, prefix := range []string{"x", "/", "x//", "../", "./", "x/../"} {
		err := error(nil)
		for _, e := range s.raw[0].List(s.Context(), s.prefix+"/"+prefix, nil) {
			err = e
			if e != nil {
				break
			}
		}
		s.wantError(fmt.Sprintf("List of the bad prefix %q", prefix), err, store.ErrInvalid)
	}
}

// listNewest: a client creates the next number and then deletes the one before. A listing
// shows the number that was highest when the listing began, or a higher one, and never
// only lower ones (T37). A snapshot does so, and so does a walk in ascending order.
func listNewest(s *suite) {
	if s.opts.LooseListing {
		s.Logf("left out: the driver reports that its listings are loose")
		return
	}
	const listers = 3
	key := func(n int64) string { return fmt.Sprintf("n/%020d", n) }
	// So many old numbers that a listing of the folder takes a while, and, unless in a hurry,
	// more than a page of most stores has.
	filler := int64(s.rounds(1100, 300))
	s.all(listers, func(i int) error {
		for n := int64(i); n < filler; n += listers {
			if _, err := s.client(i).Put(s.Context(), key(n), newBody(20), &store.PutOptions{If: store.IfAbsent()}); err != nil {
				return fmt.Errorf("Put(%q): %w", key(n), err)
			}
		}
		return nil
	})
	newestMeanwhile(s, key, &filler)
	var newest, lists atomic.Int64
	newest.Store(filler - 1)
	stop := make(chan struct{})
	s.all(listers+1, func(i int) error {
		if i == listers {
			defer close(stop)
			// Until the listers have listed often enough meanwhile.
			rounds := int64(s.rounds(100, 20))
			for r := int64(0); r < rounds || lists.Load() < rounds && r < 50*rounds; r++ {
				n := filler + r
				if err := replace(s, i, key(n-1), key(n), func() { newest.Store(n) }); err != nil {
					return err
				}
			}
			return nil
		}
		for {
			begun := key(newest.Load())
			seen := ""
			for info, err := range s.client(i).List(s.Context(), "n/", nil) {
				if err != nil {
					return fmt.Errorf("listing: %w", err)
				}
				seen = max(seen, info.Key)
			}
			lists.Add(1)
			if seen < begun {
				return fmt.Errorf("a listing shows %s as the newest, although %s was there when it began and went only after the next had come", seen, begun)
			}
			select {
			case <-stop:
				return nil
			default:
			}
		}
	})
}

// replace creates the key next, calls created, and deletes the key last.
func replace(s *suite, client int, last, next string, created func()) error {
	if _, err := s.client(client).Put(s.Context(), next, newBody(20), &store.PutOptions{If: store.IfAbsent()}); err != nil {
		return fmt.Errorf("Put(%q): %w", next, err)
	}
	created()
	if err := s.client(client).Delete(s.Context(), last); err != nil {
		return fmt.Errorf("Delete(%q): %w", last, err)
	}
	return nil
}

// newestMeanwhile is listNewest without concurrency: the newest number is replaced while the
// listing stands at some key. There are count numbers, of which the newest is the highest.
func newestMeanwhile(s *suite, key func(int64) string, count *int64) {
	s.Helper()
	for _, at := range []int64{1, *count / 2, *count - 1} {
		begun, seen, shown := key(*count-1), "", int64(0)
		for info, err := range s.st().List(s.Context(), "n/", nil) {
			if err != nil {
				s.Fatalf("listing: %v", err)
			}
			seen = max(seen, info.Key)
			if shown++; shown == at {
				if err := replace(s, 1, begun, key(*count), func() {}); err != nil {
					s.Fatalf("%v", err)
				}
			}
		}
		if seen < begun {
			s.Errorf("a listing shows %s as the newest, although %s was there when it began and went only after %s had come", seen, begun, key(*count))
		}
		*count++
	}
}

// deletes: missing keys, repeated keys, no keys.
func deletes(s *suite) {
	kept := map[string]store.Info{}
	for _, key := range []string{"d/1", "d/2", "d/3/4", "e"} {
		kept[key] = s.put(s.st(), key, newBody(10), store.IfAbsent())
	}
	remove := func(keys ...string) {
		s.Helper()
		if err := s.st().Delete(s.Context(), keys...); err != nil {
			s.Errorf("Delete(%q): %v", keys, err)
		}
		for _, key := range keys {
			delete(kept, key)
			s.wantAbsent(s.client(1), key)
		}
		s.wantListed(s.client(1), "", kept)
	}
	remove()
	remove("missing")
	remove("d/1", "d/1", "d/missing", "missing/x")
	remove("d/1")
	remove("d/3/4")
	remove("d/2", "e")
	s.put(s.st(), "d/3/4", newBody(10), store.IfAbsent())
}
