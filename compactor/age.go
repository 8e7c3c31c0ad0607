package compactor

import (
	"sync"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
)

// sightings are when this compactor first saw each state of some objects.
type sightings struct {
	mu   sync.Mutex
	seen map[string]clock.Instant
}

// watch notes what there is now, forgets what there is no more, and returns for
// how long each has been seen.
func (s *sightings) watch(now clock.Instant, infos []store.Info) func(store.Info) time.Duration {
	id := func(info store.Info) string { return info.Key + " " + string(info.Version) }
	seen := make(map[string]clock.Instant, len(infos))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, info := range infos {
		since, ok := s.seen[id(info)]
		if !ok {
			since = now
		}
		seen[id(info)] = since
	}
	s.seen = seen
	return func(info store.Info) time.Duration { return now.Sub(seen[id(info)]) }
}

// look returns for how long objects have been there, at least: by the store's own
// clock, or if it tells no time by how long this compactor has seen them. No other
// clock will do, least of all this machine's time of day.
func (s *sightings) look(now clock.Instant, infos []store.Info) func(store.Info) time.Duration {
	watched := s.watch(now, infos)
	return func(info store.Info) time.Duration {
		if age, known := age(info); known {
			return age
		}
		return watched(info)
	}
}

// age tells how long ago an object was written, at least, by the store's clock
// alone.
//
// guard:age-resolution. Many stores count in seconds and cut the rest off, so what
// was written just now may look a second old.
//
//mutant:replace age - unit => age
func age(info store.Info) (age time.Duration, known bool) {
	if age, known = info.Age(); !known {
		return 0, false
	}
	for _, unit := range []time.Duration{time.Second, time.Millisecond} {
		if info.LastModified.Nanosecond()%int(unit) == 0 {
			return age - unit, true
		}
	}
	return age, true
}
