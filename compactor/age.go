package compactor

import (
	"sync"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
)

// sightings are when this process first saw each version of some objects.
type sightings struct {
	mu   sync.Mutex
	seen map[string]clock.Instant
}

// watch notes the objects that there are now and forgets all others. The function that it
// returns tells for how long an object has been seen.
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

// ages is watch for the age of each object, at least: by the store's own clock; or if the
// store tells no time, by how long this process has seen the object. Another clock, such
// as this machine's time of day, may be wrong by hours.
func (s *sightings) ages(now clock.Instant, infos []store.Info) func(store.Info) time.Duration {
	watched := s.watch(now, infos)
	return func(info store.Info) time.Duration {
		if age, known := age(info); known {
			return age
		}
		return watched(info)
	}
}

// age returns how long ago an object was written, at least, by the store's clock alone.
//
// guard:age-resolution. Some stores cut off fractions of a second, others fractions of a
// millisecond. Where the time shows that, the unit is subtracted from the age. Without it:
// an object that was written just now looks a second old, and the grace period ends too
// early.
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
