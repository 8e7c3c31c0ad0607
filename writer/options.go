package writer

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/sink"
	"github.com/fencepost/fencepost/store"
)

// Frugal is a value of [Options.RequestsPerSecond] for a small bill: 7.7 million PUTs a month of
// records, hedges included, which is $39 on S3, however many records come. There an append takes some
// 210 ms instead of 35, and one in a hundred 410 ms. docs/costs.md says what else costs.
const Frugal = 2.8

// Options of [Open]. The zero value works, and so does nil.
type Options struct {
	// Concurrency is how many objects of the log are written at once, 1 to 4096, default 16.
	// Each takes one request; hedges, file uploads and manifests come on top.
	//
	// Open reads the tail with twice as many requests, at least 64 and at most 256, of up to
	// 256 KiB each. It holds up to as much again for objects that wait for their turn,
	// and 64 MiB besides.
	Concurrency int
	// Window is how many objects may be sent after the last acknowledged one, default
	// 4 × Concurrency. Objects are acknowledged in order, so with a window no larger than
	// Concurrency the pipeline waits for its slowest request.
	Window int
	// BatchBytes is how many bytes an object may grow to while it waits for a free request,
	// before compression. Default 4 MiB, or the log's limit or MaxBytes if that is less. An
	// append that is larger becomes an object of its own, up to the log's limit.
	BatchBytes int64
	// MaxBytes bounds the payload, in bytes, that is sent and not acknowledged. Default
	// 256 MiB, or BatchBytes if that is more. When it is reached, one more object is
	// filled, and then appends wait. An append that is larger is sent alone.
	MaxBytes int64
	// Linger is how long an append waits at least for others to share its object, although a
	// request is free: fewer requests, later acknowledgements. It ends early when the object
	// is full, an edit comes, or Flush or Close is called. Default 0: the writer waits only
	// as long as helps its clients. While nothing is in flight, it sends at once, but waits 1/16
	// of the usual latency for clients that were just acknowledged. Beside an object in flight,
	// the next one is sent 4/5 of the usual latency after it, at most 100 ms. Where most clients
	// append again as soon as they are acknowledged, it waits until nothing is in flight: for two
	// latencies at most, and 250 ms.
	Linger time.Duration
	// RequestsPerSecond bounds how many objects are sent per second, on average. Appends
	// that wait share the next object. After a pause as many as in one second, and at least
	// one, may be sent at once. Retries, hedges and checkpoints come on top. Flush waits for
	// its turn; Close sends what is left at once, as one more object. Default 0: no bound.
	// See [Frugal].
	RequestsPerSecond float64
	// Hedge sends an object a second time, and reads its slot, when the first request takes
	// longer than this quantile of the last ones. The first answer counts. Objects are
	// acknowledged in order, so one late request delays all after it. So an object is sent again
	// too when a later one is applied first. Where all clients wait for one object after the
	// other, and times vary much, every eighth is sent twice at once; so are three of four objects
	// in which several commits of files share one edit. From 0.5 to below 1, default 0.96; a
	// negative value means never.
	//
	// It costs at most 5 % more PUT requests because they are late, and 20 % for the other
	// reasons, uploads of files counted, and up to two GETs for each of those. The second requests of objects from
	// 256 KiB on also have at most 5 % and 20 % of the bytes of all objects. Objects that are overtaken
	// only by much smaller ones are not sent again for that. The requests that lose are cancelled, which
	// over HTTP/1.1 costs their connections. Large objects are not hedged: from 1.4 MB on where
	// requests take 28 ms, and more or less where they take longer or shorter. Nor is any where
	// they take less than 1 ms.
	Hedge float64
	// NoCompress stores payloads as they are. Otherwise they are compressed with Zstandard
	// at its fastest level, on up to 8 processors, and stored so if that is smaller.
	NoCompress bool
	// Checkpoint is how often the writer notes the acknowledged end of the history in the
	// manifest. A successor and readers begin there. It is off the commit path and is skipped
	// if nothing is new, and comes earlier after 1,024 objects or 256 MiB. Default 10 s. A
	// negative value means only the first one, after Open, which records the epoch.
	Checkpoint time.Duration
	// Files is the store for the files of the table, if the log keeps them in a second one: see
	// manifest.InitOptions.Files. It is that of Init by default.
	Files store.Store
	// Init describes the log if it does not exist yet. Its Settle and Clock are the writer's by default.
	Init *manifest.InitOptions
	// Settle tunes retries. Its Clock is Clock by default.
	Settle *store.SettleOptions
	// Clock is the machine's by default.
	Clock clock.Clock
	// Logger is silent by default.
	Logger *zap.Logger
	Hooks  Hooks
}

const (
	maxConcurrency = 4096
	// maxWindow bounds Window, and with it how far a successor's wall of seals must reach.
	maxWindow = 1 << 16
	// minRate is one request a day. Far below that an interval is no time.Duration.
	minRate = 1.0 / (24 * 60 * 60)
)

// Validate returns what is wrong with the options, those of Init included: all faults,
// joined, each of them [ErrOptions]. Call it before an election that the options would
// waste. It does no I/O, so Open may still refuse a BatchBytes that is over the limits of
// a log that exists.
func (o *Options) Validate() error {
	v := o.withDefaults()
	return v.check()
}

func (o *Options) withDefaults() Options {
	v := *cmp.Or(o, &Options{})
	v.Concurrency = cmp.Or(v.Concurrency, 16)
	v.Window = cmp.Or(v.Window, 4*max(v.Concurrency, 1))
	v.MaxBytes = cmp.Or(v.MaxBytes, max(256<<20, v.BatchBytes))
	v.Checkpoint = cmp.Or(v.Checkpoint, 10*time.Second)
	v.Hedge = cmp.Or(v.Hedge, 0.96)
	v.Logger = sink.Logger(v.Logger)
	v.Clock = clock.Or(v.Clock)
	settle := *cmp.Or(v.Settle, &store.SettleOptions{})
	settle.Clock = cmp.Or(settle.Clock, v.Clock)
	v.Settle = &settle
	init := *cmp.Or(v.Init, &manifest.InitOptions{})
	init.Settle, init.Clock = cmp.Or(init.Settle, v.Settle), cmp.Or(init.Clock, v.Clock)
	if !store.IsNil(v.Files) {
		init.Files = v.Files
	}
	v.Init = &init
	return v
}

func (o *Options) check() error {
	var bad []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			bad = append(bad, invalid(format, args...))
		}
	}
	need(o.Concurrency >= 1 && o.Concurrency <= maxConcurrency, "Concurrency %d must be from 1 to %d", o.Concurrency, maxConcurrency)
	need(o.Window >= o.Concurrency && o.Window <= maxWindow, "Window %d must be from Concurrency %d to %d", o.Window, o.Concurrency, maxWindow)
	need(o.BatchBytes >= 0, "BatchBytes %d must be positive, or 0 for the default", o.BatchBytes)
	least := int64(o.Concurrency * frame.RecordSize(1))
	need(o.MaxBytes >= least, "MaxBytes %d is below %d: as many objects as Concurrency %d, with one record of one byte each, could never be in flight",
		o.MaxBytes, least, o.Concurrency)
	need(o.MaxBytes >= o.BatchBytes, "MaxBytes %d is below BatchBytes %d: a full object could not be sent beside another", o.MaxBytes, o.BatchBytes)
	need(o.Linger >= 0, "Linger %v must not be negative", o.Linger)
	// Not a number fails each comparison.
	need(o.RequestsPerSecond == 0 || o.RequestsPerSecond >= minRate, "RequestsPerSecond %v must be at least 1 a day, which is 1.0/86400, or 0 for no bound", o.RequestsPerSecond)
	need(o.Hedge < 0 || o.Hedge >= 0.5 && o.Hedge < 1, "Hedge %v must be at least 0.5 and less than 1, 0 for the default, or negative for never", o.Hedge)
	if err := o.Settle.Validate(); err != nil {
		bad = append(bad, invalid("Settle: %w", err))
	}
	if err := o.Init.Validate(); err != nil {
		bad = append(bad, invalid("Init: %w", err))
	}
	return errors.Join(bad...)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrOptions}, args...)...)
}

// hedge returns what the writer's creates share; nil for none.
func (o *Options) hedge() *store.Hedge {
	if o.Hedge < 0 {
		return nil
	}
	return &store.Hedge{Quantile: o.Hedge}
}

// fit completes the options by what depends on the log.
func (o *Options) fit(limits fence.Limits) error {
	o.BatchBytes = cmp.Or(o.BatchBytes, min(4<<20, limits.Object, o.MaxBytes))
	if o.BatchBytes > limits.Object {
		return invalid("BatchBytes %d is over %d, the limit of this log for an object", o.BatchBytes, limits.Object)
	}
	return nil
}
