package writer

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// Options of a writer. The zero value works.
type Options struct {
	// InFlight is how many objects of the log are being written at once, default 16. A
	// request each; hedges, files that are uploaded and manifests come on top. Open reads
	// the tail of the log with more: twice as many, at least 64 and at most 256, each of
	// up to 256 KiB at first, and holds as much again that waits for its turn; of objects
	// that are larger 64 MiB at once on top of that, or one that is larger still.
	InFlight int
	// Window is how many slots may be sent beyond the last acknowledged one,
	// default 4 × InFlight. Acknowledgement is in order, so with a window no
	// larger than InFlight the pipeline stalls behind its slowest request.
	Window int
	// BatchBytes is how large an object may grow while it waits for a free
	// request, before compression; default 4 MiB, or the log's limit or MaxBytes if
	// that is less. A larger append is an object of its own, up to the log's limit.
	BatchBytes int
	// MaxBytes bounds the payload that is sent and not acknowledged; default
	// 256 MiB, or BatchBytes if that is more. Beyond it one more object is filled,
	// and then appends wait. An append that is larger goes alone.
	MaxBytes int
	// Linger is how long an append may wait for others to share its object, although
	// a request is free: fewer requests for later acknowledgements. It ends early when
	// the object is full, an edit comes, or Flush or Close is called. Default none.
	Linger time.Duration
	// RequestsPerSecond bounds how many objects are sent, on average; what comes
	// meanwhile shares the next one. After a pause a second's worth may go at once,
	// and at least one. Retries, hedges and checkpoints come on top. Flush waits for
	// it, Close does not: what waits then is sent at once, one object more. Default 0:
	// no bound.
	RequestsPerSecond float64
	// Hedge sends the identical bytes of a slot a second time when the first request
	// takes longer than this quantile of the last ones, and reads the slot; the first
	// answer counts. Acknowledgement is in order, so one late request holds up all
	// behind it. 0.96 is a good value; at least 0.5 and less than 1. At most 5 % more
	// PUT requests are made, and up to two GETs for each of them; the ones that lose
	// are broken off, which over HTTP/1.1 costs their connections.
	// Default 0: never.
	Hedge float64
	// NoCompress stores payloads as they are. By default they are compressed, with
	// Zstandard at its fastest level, on up to 8 processors at once, and stored so where
	// that is smaller.
	NoCompress bool
	// Checkpoint is how often the manifest is told where the tail is, so that a
	// successor and readers start near it: default 10 s, and only if there is
	// something to tell; a negative value means never, but for the one that Open has
	// made, which records the epoch. It is off the commit path.
	Checkpoint time.Duration
	// Until ends the writer: when it is done nothing more is sent, and what was sent
	// and is not settled is reported as ErrUnknown. Pass the context of the leader's term. The
	// writer is safe without it; with it a deposed leader stops by itself.
	Until context.Context //nolint:containedctx // an option: it is only watched, no request runs under it
	// Init describes the log if it does not exist yet. Its Settle is that below by
	// default.
	Init *manifest.InitOptions
	// Settle tunes retries. Its Clock is that below by default.
	Settle *store.SettleOptions
	// Clock is the machine's by default.
	Clock clock.Clock
	// Logger is silent by default.
	Logger *zap.Logger
	// Hooks are called at events; see there.
	Hooks Hooks

	hedge *store.Hedge // by Hedge
}

// Hooks are called one at a time, outside all locks, from the writer's own
// goroutines, which send nothing meanwhile. So they must return soon, and must wait
// for nothing of the writer: no append, not even AppendAsync, which waits for room,
// no Future, no Flush, no Close. Any may be nil.
type Hooks struct {
	// Acknowledged is called for every object that has become part of the history,
	// in order.
	Acknowledged func(Slot)
	// Recovering is called while the tail is read in Open, after each object, from
	// Open's goroutine.
	Recovering func(Recovery)
}

// Recovery tells how far [Open] has come with reading the tail of the log, from the
// newest checkpoint on. How much there is nobody knows before its end is found; with a
// leader that checkpointed until it died it is what that wrote in one interval.
type Recovery struct {
	// Objects, their Records and Bytes that have been read, seals included. What is read
	// again, because a compactor was quicker, counts again.
	Objects int
	Records uint64
	Bytes   int64
	// Position and Offset are behind the last object.
	Position fence.Position
	Offset   uint64
	// Time at which it was written, by its writer's clock: the nearer to now, the less
	// is to come.
	Time time.Time
}

// Slot describes an acknowledged object.
type Slot struct {
	Position fence.Position
	First    uint64 // offset of the first record
	Records  int
	Bytes    int // of the object, as it is stored
	Payload  int // bytes in it before compression: the records with their lengths, or the edit
	// Took is the time from sending to acknowledging; Settled that until its own
	// request was answered.
	Took, Settled time.Duration
}

// maxWindow bounds Options.Window, and with it how far ahead a wall of seals must reach.
const maxWindow = 1 << 16

// minRate is one request a day: far below it an interval has no duration.
const minRate = 1.0 / (24 * 60 * 60)

// Validate tells what is wrong with the options, of the log to be created too, as
// [Open] would: for who has to win an election before that. It does no I/O, so it
// does not know the limits of a log that exists. nil is valid.
func (o *Options) Validate() error {
	_, err := o.withDefaults()
	return err
}

func (o *Options) withDefaults() (Options, error) {
	var v Options
	if o != nil {
		v = *o
	}
	if v.InFlight == 0 {
		v.InFlight = 16
	}
	if v.Window == 0 {
		v.Window = 4 * v.InFlight
	}
	if v.MaxBytes == 0 {
		v.MaxBytes = max(256<<20, v.BatchBytes)
	}
	if v.Checkpoint == 0 {
		v.Checkpoint = 10 * time.Second
	}
	if v.Logger == nil {
		v.Logger = zap.NewNop()
	}
	v.Clock = clock.Or(v.Clock)
	var settle store.SettleOptions
	if v.Settle != nil {
		settle = *v.Settle
	}
	if settle.Clock == nil {
		settle.Clock = v.Clock
	}
	if v.Hedge != 0 {
		if !(v.Hedge >= 0.5 && v.Hedge < 1) {
			return v, fmt.Errorf("writer: Hedge is %v; it must be at least 0.5 and less than 1", v.Hedge)
		}
		v.hedge = &store.Hedge{Quantile: v.Hedge}
	}
	v.Settle = &settle
	var init manifest.InitOptions
	if v.Init != nil {
		init = *v.Init
	}
	if init.Settle == nil {
		init.Settle = v.Settle
	}
	v.Init = &init
	if err := init.Validate(); err != nil {
		return v, fmt.Errorf("writer: Init: %w", err)
	}
	switch {
	case v.InFlight < 1 || v.InFlight > 4096:
		return v, fmt.Errorf("writer: InFlight is %d; it must be from 1 to 4096", v.InFlight)
	case v.Window < v.InFlight || v.Window > maxWindow:
		return v, fmt.Errorf("writer: Window is %d; it must be at least InFlight, %d, and at most %d", v.Window, v.InFlight, maxWindow)
	case v.BatchBytes < 0:
		return v, fmt.Errorf("writer: BatchBytes is %d; it must be at least 1, or 0 for the default", v.BatchBytes)
	case v.Linger < 0:
		return v, fmt.Errorf("writer: Linger is %v; it must not be negative", v.Linger)
	case !(v.RequestsPerSecond >= 0) || v.RequestsPerSecond > 0 && v.RequestsPerSecond < minRate:
		return v, fmt.Errorf("writer: RequestsPerSecond is %v; it must be at least %v, or 0 for no bound", v.RequestsPerSecond, minRate)
	case v.MaxBytes < 1 || v.MaxBytes < v.BatchBytes:
		return v, fmt.Errorf("writer: MaxBytes is %d; it must be at least 1, and at least BatchBytes, %d", v.MaxBytes, v.BatchBytes)
	}
	return v, nil
}

// fit completes the options by what depends on the log.
func (o *Options) fit(limits fence.Limits) error {
	if o.BatchBytes == 0 {
		o.BatchBytes = min(4<<20, limits.Object, o.MaxBytes)
	}
	if o.BatchBytes > limits.Object {
		return fmt.Errorf("writer: BatchBytes is %d; the log's limit for an object is %d", o.BatchBytes, limits.Object)
	}
	return nil
}
