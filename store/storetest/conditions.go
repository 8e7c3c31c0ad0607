package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/store"
)

// conditions: every condition holds when it should, without concurrency.
func conditions(s *suite) {
	st := s.st()
	first, second, third := newBody(100), newBody(100), newBody(100)
	refuse := func(what, key string, cond store.Condition, now []byte) {
		s.Helper()
		if v, swap := cond.Match(); swap {
			what += fmt.Sprintf(", where Condition.Match returns %q", v)
		}
		_, err := st.Put(s.Context(), key, newBody(100), &store.PutOptions{If: cond})
		s.wantError(what, err, store.ErrPrecondition)
		if o := store.OutcomeOf(err); o != store.Refused {
			s.Errorf("%s: the outcome is %v, want refused", what, o)
		}
		if now == nil {
			s.wantAbsent(st, key)
		} else {
			s.wantBody(st, key, now)
		}
	}

	v1 := s.put(st, "k", first, store.IfAbsent()).Version
	refuse("create of a key that exists", "k", store.IfAbsent(), first)
	v2 := s.put(st, "k", second, store.IfMatch(v1)).Version
	refuse("swap of a stale version", "k", store.IfMatch(v1), second)
	refuse("swap of the empty version", "k", store.IfMatch(""), second)
	other := s.put(st, "other", newBody(100), store.IfAbsent()).Version
	refuse("swap of another object's version", "k", store.IfMatch(other), second)
	v3 := s.put(st, "k", third, store.Condition{}).Version
	refuse("swap of a version replaced without condition", "k", store.IfMatch(v2), third)
	refuse("create of a key written without condition", "k", store.IfAbsent(), third)
	v4 := s.put(st, "k", first, store.IfMatch(v3)).Version
	// Equal bytes again: the version may be as before (MD5) or not.
	v5 := s.put(st, "k", first, store.IfMatch(v4)).Version
	s.put(st, "k", second, store.IfMatch(v5))

	refuse("swap of a key that never was", "missing", store.IfMatch(v1), nil)
	refuse("swap of the empty version of a key that never was", "missing", store.IfMatch(""), nil)
	s.put(st, "missing", first, store.Condition{})
	s.wantBody(st, "missing", first)

	// Versions are text. These read like one that was given, or like none, but none is one.
	given := s.put(st, "k", third, store.Condition{}).Version
	for _, v := range neverGiven(given, v1, v2, v3, v4, v5, other) {
		refuse("swap of a version that was never given", "k", store.IfMatch(v), third)
		refuse("swap of a version that was never given, of a key that never was", "missing too", store.IfMatch(v), nil)
	}

	last := s.put(st, "k", third, store.Condition{}).Version
	if err := st.Delete(s.Context(), "k"); err != nil {
		s.Fatalf("Delete: %v", err)
	}
	refuse("swap of a deleted key", "k", store.IfMatch(last), nil)
	s.put(st, "k", second, store.IfAbsent())
	s.wantBody(st, "k", second)
	refuse("swap of a version from before the key was deleted", "k", store.IfMatch(last), second)
}

// neverGiven returns versions that the store has not given, in forms which a parser or a
// comparison that is not exact takes for one of those given. Quotes are not among them: a store
// may take an ETag with and without.
func neverGiven(given ...store.Version) (others []store.Version) {
	v := string(given[0])
	digits := strings.TrimLeft(v, `"`) // a version may have quotes of its own
	for _, other := range []string{
		"0", "00", "-1", "x", "*", " ", v + " ", " " + v, v[:len(v)-len(digits)] + "0" + digits, v[:len(v)-len(digits)] + "+" + digits,
		strings.ToUpper(v), strings.ToLower(v), "absent", "none", "null",
	} {
		if !slices.Contains(given, store.Version(other)) {
			others = append(others, store.Version(other))
		}
	}
	return others
}

// versions: Put, Get and List show one version for one state, and different versions for
// different states.
func versions(s *suite) {
	seen := map[store.Version]int{}
	current := store.Info{}
	for i := range s.rounds(60, 20) {
		body := newBody(64) // always of this size, on which the version must not depend
		var cond store.Condition
		switch {
		case i == 0:
			cond = store.IfAbsent()
		case i%3 != 0:
			cond = store.IfMatch(current.Version)
		}
		current = s.put(s.client(i), "k", body, cond)
		if earlier, repeated := seen[current.Version]; repeated {
			s.Errorf("write %d has the version %q of write %d", i, current.Version, earlier)
		}
		seen[current.Version] = i
		for j := range 2 { // also through a client that did not write it
			got := s.wantBody(s.client(i+j), "k", body)
			if got.Version != current.Version {
				s.Errorf("Put says version %q, Get %q", current.Version, got.Version)
			}
		}
		s.wantListed(s.client(i+1), "", map[string]store.Info{"k": current})
		_, part, err := s.read(s.st(), "k", &store.GetOptions{Offset: 3, Length: 5})
		if err != nil || part.Version != current.Version {
			s.Errorf("Get of a range: version %q, %v; want %q", part.Version, err, current.Version)
		}
	}
}

// dates: if a store tells times, they come from one clock.
func dates(s *suite) {
	const slack = 5 * time.Second // HTTP dates are in seconds, and may be cached
	sane := func(what string, i store.Info) {
		s.Helper()
		for name, t := range map[string]time.Time{"LastModified": i.LastModified, "Date": i.Date} {
			if !t.IsZero() && t.Year() < 2000 {
				s.Errorf("%s: %s is %v", what, name, t)
			}
		}
		if !i.Date.IsZero() && !i.LastModified.IsZero() && i.LastModified.After(i.Date.Add(slack)) {
			s.Errorf("%s: LastModified %v lies after Date %v", what, i.LastModified, i.Date)
		}
	}
	var last store.Info
	for i := range 5 {
		put := s.put(s.client(i), "k", newBody(10), store.Condition{})
		sane("Put", put)
		_, got, err := s.read(s.client(i+1), "k", nil)
		if err != nil {
			s.Fatalf("Get: %v", err)
		}
		sane("Get", got)
		listed := s.list(s.client(i+2), "", nil)["k"]
		sane("List", listed)
		if got.LastModified.IsZero() != listed.LastModified.IsZero() {
			s.Errorf("Get says LastModified %v, List %v", got.LastModified, listed.LastModified)
		}
		for what, other := range map[string]store.Info{"Put": put, "List": listed} {
			if d := other.LastModified.Sub(got.LastModified).Abs(); !other.LastModified.IsZero() && d > slack {
				s.Errorf("LastModified of one write: Get says %v, %s %v", got.LastModified, what, other.LastModified)
			}
		}
		if got.LastModified.Before(last.LastModified.Truncate(time.Second)) {
			s.Errorf("LastModified went back from %v to %v", last.LastModified, got.LastModified)
		}
		last = got
	}
}

// readAfterWrite: every client sees at once what another has done.
func readAfterWrite(s *suite) {
	for i := range s.rounds(40, 15) {
		clients := []store.Store{s.client(i), s.client(i + 1), s.client(i + 2)}
		key := fmt.Sprintf("dir/%d", i)
		shows := func(body []byte, info store.Info) {
			s.Helper()
			for _, st := range clients {
				s.wantBody(st, key, body)
				s.wantListed(st, "dir/", map[string]store.Info{key: info})
			}
		}
		body := newBody(50)
		info := s.put(clients[0], key, body, store.IfAbsent())
		shows(body, info)

		body = newBody(70)
		info = s.put(clients[1], key, body, store.IfMatch(info.Version))
		shows(body, info)

		if err := clients[2].Delete(s.Context(), key); err != nil {
			s.Fatalf("Delete(%q): %v", key, err)
		}
		for _, st := range clients {
			s.wantAbsent(st, key)
			s.wantListed(st, "dir/", nil)
		}
	}
}
