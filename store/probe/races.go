package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/chase"
)

// In a race each racer sends one request, and the answers count as they are. A store that
// keeps its promises applies the bytes of at most one racer, even if requests are lost,
// repeated or late. So two racers that are told they won convict the store, whatever else
// went wrong. No winner convicts it only if every racer was refused and no racer's bytes
// are there: a winner's answer may be lost, or be the echo of its own write.

// tries is how many races may end without a result for each one with a result.
const tries = 4

// races calls race until enough of its races had a result.
func (p *prober) races(who string, results *int, race func(n int) (conclusive bool, err error)) error {
	for n := 0; *results < p.opts.Rounds; n++ {
		if n == tries*p.opts.Rounds {
			return fmt.Errorf("%w: %d races of %s had %d results", ErrInconclusive, n, who, *results)
		}
		conclusive, err := race(n)
		if err != nil {
			return err
		}
		if conclusive {
			*results++
		}
	}
	return nil
}

func (p *prober) raceCreators(ctx context.Context) error {
	return p.races("creators", &p.report.CreateRaces, func(int) (bool, error) {
		return p.race(ctx, CreateAtomic, "creators", p.key(), nil, store.IfAbsent())
	})
}

// raceSwappers uses a new key for each race. Otherwise a late request of an earlier race
// would be one more racer, with unknown bytes. If a key cannot be written again at once,
// it makes all keys first, so that most have waited long enough when their race begins.
func (p *prober) raceSwappers(ctx context.Context) error {
	type raced struct {
		key     string
		old     []byte
		version store.Version
	}
	var ready []raced
	return p.races("swappers", &p.report.SwapRaces, func(n int) (bool, error) {
		missing := 0
		switch {
		case len(ready) > 0:
		case p.rewrite > 0:
			missing = p.opts.Rounds - p.report.SwapRaces
		default:
			missing = 1
		}
		for i := range missing {
			key, old := p.key(), body("race of swappers")
			info, err := p.write(ctx, Create, n+i, key, nil, old, store.IfAbsent())
			if err != nil {
				return false, err
			}
			ready = append(ready, raced{key, old, info.Version})
		}
		r := ready[0]
		ready = ready[1:]
		return p.race(ctx, SwapAtomic, "swappers", r.key, r.old, store.IfMatch(r.version))
	})
}

var errRaceTimeout = errors.New("probe: no answer in time")

// atOnce makes each client send a write of its own, all at the same time.
func (p *prober) atOnce(ctx context.Context, who, key string, cond store.Condition, bodies [][]byte, errs []error) {
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range p.clients {
		bodies[i] = body("race of " + who)
		wg.Go(func() {
			ctx, cancel := clock.WithTimeout(ctx, p.opts.Clock, p.opts.Attempt, errRaceTimeout)
			defer cancel()
			<-start
			errs[i] = p.timed("race", func() error {
				_, err := p.clients[i].Put(ctx, key, bodies[i], &store.PutOptions{If: cond})
				return err
			})
		})
	}
	close(start)
	wg.Wait()
}

// race makes all clients send a write on the same condition at once. It is conclusive if
// one won and at least half of the racers got an answer.
func (p *prober) race(ctx context.Context, promise, who, key string, old []byte, cond store.Condition) (conclusive bool, err error) {
	racers := len(p.clients)
	bodies, errs := make([][]byte, racers), make([]error, racers)
	if err := p.mutate(ctx, key, func() error { p.atOnce(ctx, who, key, cond, bodies, errs); return nil }); err != nil {
		return false, failed("racing for "+key, err)
	}

	won, lost, unknown, throttled, winner := 0, 0, 0, 0, -1
	var last error
	for i, err := range errs {
		switch store.OutcomeOf(err) {
		case store.Applied:
			won++
			winner = i
		case store.Refused:
			lost++
		case store.Rejected:
			return false, p.failure(promise, "writing "+key+" ("+cond.String()+")", err)
		case store.Unknown:
			unknown++
			last = err
			// A store that takes one write of a key per second answers losers so. The key
			// must hold what the winner wrote, now and at the end.
			if e := (*store.Error)(nil); p.rewrite > 0 && errors.As(err, &e) && e.Status == http.StatusTooManyRequests {
				throttled++
			}
		}
	}
	if won > 1 {
		return false, p.refuse(promise, hintAtomic, nil, "%d %s raced for one key, %d were told that they won", racers, who, won)
	}
	if unknown == racers {
		// A pause, since the store may be down for a moment.
		if cause := clock.Sleep(ctx, p.opts.Clock, 50*time.Millisecond); cause != nil {
			return false, failed("racing for "+key, fmt.Errorf("%w (%w)", cause, last))
		}
	}

	var there []byte
	var version store.Version
	for n := range min(racers, 3) { // all clients must see the same
		got, info, err := p.get(ctx, p.client(n), key)
		if err != nil {
			return false, err
		}
		settled := won == 1 || unknown == 0 // else a late write may land between two reads
		if n > 0 && settled && (!bytes.Equal(got, there) || info.Version != version) {
			return false, p.refuse(ReadWrite, hintConsistent, nil, "after a race of %s, readers do not agree on what is there", who)
		}
		there, version = got, info.Version
	}
	whose := -1
	for i := range bodies {
		if bytes.Equal(there, bodies[i]) {
			whose = i
		}
	}
	switch {
	case won == 1 && whose != winner:
		return false, p.refuse(promise, hintAtomic, nil, "%d %s raced for one key, one was told that it won, and the key does not hold its bytes", racers, who)
	case whose >= 0:
		if store.OutcomeOf(errs[whose]) == store.Refused {
			p.report.Echoes++
		}
		p.final[key] = there
		return 2*(won+lost+throttled) >= racers, nil
	case unknown == 0:
		// Every racer was refused, and none of their bytes are there. But the condition held,
		// and nobody else knows the key.
		return false, p.refuse(promise, hintConditions, nil, "%d %s raced for one key, and all were told that they lost", racers, who)
	case !bytes.Equal(there, old):
		return false, p.refuse(ReadWrite, hintConsistent, nil, "after a race of %s, the key holds bytes that none of them wrote", who)
	}
	// Nothing was applied yet. A lost request may land later, so the probe does not check
	// this key at the end.
	delete(p.final, key)
	return false, nil
}

// chases lets all clients write as fast as they can, if the store answers within microseconds:
// otherwise the writes of a race do not overlap. A store that has a network or a disk gets no
// request. Nor does one while the probe's clock stands still, as in a synctest bubble, since a
// chase ends after some time. Nor does a probe that is meant to be short, which tests count on.
//
// Only two winners of one condition convict the store. An answer of unknown outcome ends the
// chase, and counts for nothing.
func (p *prober) chases(ctx context.Context) error {
	puts := slices.Clone(p.spans["put"])
	if took := latency(puts).P50; p.rewrite > 0 || p.opts.Rounds < 10 || took <= 0 || took >= float64(chase.Swift)/float64(time.Millisecond) {
		return nil
	}
	if err := p.chase(ctx, CreateAtomic, "created the same key", func() (func(int) string, store.Version, error) {
		keys := make([]string, chasePart+1)
		for i := range keys {
			keys[i] = p.key()
		}
		return func(n int) string { return keys[n] }, "", nil
	}); err != nil {
		return err
	}
	return p.chase(ctx, SwapAtomic, "replaced the same version", func() (func(int) string, store.Version, error) {
		key, b := p.key(), body("chase")
		info, err := p.write(ctx, Create, 0, key, nil, b, store.IfAbsent())
		delete(p.final, key)
		return func(int) string { return key }, info.Version, err
	})
}

// chasePart is how many creates or swaps there are before their keys are deleted.
const chasePart = 5000

// chase makes chases of one kind for some time. Begin returns the keys of the next one, and the
// version with which its swaps begin.
func (p *prober) chase(ctx context.Context, promise, what string, begin func() (func(n int) string, store.Version, error)) error {
	const round = 10 * time.Millisecond
	end := p.opts.Clock.Now().Add(time.Duration(p.opts.Rounds) * round)
	ctx, cancel := clock.WithTimeout(ctx, p.opts.Clock, p.opts.Attempt+time.Duration(p.opts.Rounds)*round, errRaceTimeout)
	defer cancel()
	more := func() bool { return p.opts.Clock.Now().Sub(end) < 0 && ctx.Err() == nil }
	for more() {
		before := maps.Clone(p.keys)
		key, first, err := begin()
		if err != nil {
			return err
		}
		r := chase.Run(len(p.clients), chasePart, first, more, func(i int, at *chase.Step) (store.Info, error) {
			cond := store.IfAbsent()
			if first != "" {
				cond = store.IfMatch(at.Version)
			}
			return p.clients[i].Put(ctx, key(at.N), body("chase"), &store.PutOptions{If: cond})
		})
		p.report.Chased += r.Won
		p.report.Overtaken += r.Lost
		if r.Twice != nil {
			return p.refuse(promise, hintAtomic, nil, "%d clients wrote as fast as they could, and two of them %s, after %d writes", len(p.clients), what, p.report.Chased)
		}
		if r.Err != nil {
			p.report.Unknown++
			return nil
		}
		var made []string
		for k := range p.keys {
			if !before[k] {
				made = append(made, k)
			}
		}
		for some := range slices.Chunk(made, 500) {
			if store.DeleteAll(ctx, p.client(0), some, p.settle) != nil {
				return nil // they are deleted at the end
			}
		}
		p.keys = before
	}
	return nil
}
