package probe

import (
	"context"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
)

// Options of [Run]. The zero value works.
type Options struct {
	// Open opens one more client of the same store, over connections of its own.
	// By default all share the store given to Run. Clients that are an io.Closer
	// are closed.
	Open func(context.Context) (store.Store, error)
	// Clients is how many there are and how many race, default 8, least 2.
	Clients int
	// Rounds is how many races of each kind must end with a result, default 25.
	Rounds int
	// Keys is how many objects test reading and listing after writing, default 16.
	Keys int
	// UploadSize in bytes is that of the streamed upload, default 17 MiB: so much
	// that drivers of S3 use more than one part. Completing parts on condition is
	// not the same code in servers as a plain conditional write.
	UploadSize int64
	// Attempt bounds one request, default 30 s; an upload may take ten times that.
	Attempt time.Duration
	// Clock is the machine's by default.
	Clock clock.Clock
}

func (o *Options) withDefaults() Options {
	var v Options
	if o != nil {
		v = *o
	}
	if v.Clients == 0 {
		v.Clients = 8
	}
	v.Clients = max(v.Clients, 2)
	if v.Rounds <= 0 {
		v.Rounds = 25
	}
	if v.Keys <= 0 {
		v.Keys = 16
	}
	if v.UploadSize <= 0 {
		v.UploadSize = 17 << 20
	}
	if v.Attempt <= 0 {
		v.Attempt = 30 * time.Second
	}
	v.Clock = clock.Or(v.Clock)
	return v
}
