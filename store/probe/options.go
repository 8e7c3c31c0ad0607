package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
)

// Options of [Run]. The zero value works.
type Options struct {
	// Open opens one more client of the same store, over connections of its own. By
	// default all share the store that Run is given. Clients that are an io.Closer are
	// closed.
	Open func(context.Context) (store.Store, error)
	// Clients is how many clients there are and race, default 8, at least 2.
	Clients int
	// Rounds is how many races of each kind must have a result, default 25. If the store answers
	// within 50 µs, there are besides 10 ms for each in which all clients write without a pause,
	// unless Rounds is below 10.
	Rounds int
	// Keys is how many objects are written to test reads and listings, default 16.
	Keys int
	// Refusals is how many creates of keys that exist are sent, and again how many swaps of
	// versions that were replaced, default 1,000. On a store with Traits.MinRewrite there are
	// fewer: one create for each object that the probe has written.
	Refusals int
	// UploadSize is the size of the streamed upload in bytes, default 9 MiB. With that,
	// drivers of S3 upload several parts, whose completion on a condition is other code
	// in servers than a plain conditional write.
	UploadSize int64
	// Attempt bounds one request, default 30 s; an upload may take ten times that.
	Attempt time.Duration
	// Clock is the machine's by default.
	Clock clock.Clock
}

// Validate returns what is wrong with the options: faults that are [store.ErrInvalid]. It
// does no I/O; nil is valid.
func (o *Options) Validate() error {
	v := o.withDefaults()
	var bad []error
	need := func(ok bool, name string, v any, want string) {
		if !ok {
			bad = append(bad, fmt.Errorf("%w: probe: Options.%s is %v; it must be %s", store.ErrInvalid, name, v, want))
		}
	}
	need(v.Clients >= 2, "Clients", v.Clients, "at least 2, since one cannot race")
	need(v.Rounds > 0, "Rounds", v.Rounds, "positive")
	need(v.Keys > 0, "Keys", v.Keys, "positive")
	need(v.Refusals > 0, "Refusals", v.Refusals, "positive")
	need(v.UploadSize > 0, "UploadSize", v.UploadSize, "positive")
	need(v.Attempt > 0, "Attempt", v.Attempt, "positive")
	return errors.Join(bad...)
}

func (o *Options) withDefaults() Options {
	v := *cmp.Or(o, &Options{})
	v.Clients = cmp.Or(v.Clients, 8)
	v.Rounds = cmp.Or(v.Rounds, 25)
	v.Keys = cmp.Or(v.Keys, 16)
	v.Refusals = cmp.Or(v.Refusals, 1000)
	v.UploadSize = cmp.Or(v.UploadSize, 9<<20)
	v.Attempt = cmp.Or(v.Attempt, 30*time.Second)
	v.Clock = clock.Or(v.Clock)
	return v
}
