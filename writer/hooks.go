package writer

import (
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/chain"
)

// Hooks are called when something happens, for metrics and traces. Each may be nil. Of
// one writer, two calls of the same hook never overlap; different hooks may be called at once, and
// so may hooks that several writers share, as those of group.Run do. They are called
// from the writer's own goroutines, which hold no state locked and send nothing meanwhile. So a
// hook must return soon, and it must not wait for the writer:
// for no append (AppendAsync waits for room), no Future, no Flush and no Close.
//
// These hooks tell of a successor, with [ErrFenced]:
//
//   - Opened, if Open has met it.
//   - Ended, if the writer has met it after Open. Count fenced writers here.
//   - Checkpoint, if a checkpoint was the first to meet it. Ended follows.
//
// No hook tells of one append that failed. Its error does: [ErrNotCommitted] together with
// ErrFenced if a successor refused it.
type Hooks struct {
	// Acknowledged: an object has become part of the history. Called in order, perhaps
	// after its Append or Flush has returned, but before Close returns.
	Acknowledged func(Acknowledgement)
	// Progress: Open has read one more object of the tail. Called by Open's goroutine.
	Progress func(Progress)
	// Opened: Open has succeeded, or has failed after its first request. Called by Open's
	// goroutine before Open returns.
	Opened func(Opening)
	// Checkpoint: the manifest has a new hint, or the update has failed. Not called if there was
	// nothing new to note, nor if a successor came before the last checkpoint of a writer that is closed
	// and has no append without an outcome.
	Checkpoint func(Checkpoint)
	// Ended: the writer takes no appends any more, and all outcomes are known. Called once for each
	// writer that Open has returned, after its other hooks have returned, and before Close
	// returns. A writer that is fenced, or fails, or whose Until ends, tells it without a Close.
	Ended func(Ending)
}

// Opening is the event of [Hooks].Opened.
type Opening struct {
	Epoch fence.Epoch
	// Err is what Open returns.
	Err error
	// Took is the time of the whole opening.
	Took time.Duration
	// Read is how much of the tail was read.
	Read Progress
	// Offset of the first record of this epoch; 0 if Open has failed.
	Offset uint64
}

// Ending is the event of [Hooks].Ended.
type Ending struct {
	Epoch fence.Epoch
	// Err is what [Writer.Err] returns from now on:
	//   - [ErrFenced] if the writer has met a successor, also during Close;
	//   - [ErrClosed] if Close has ended it, or the context of Until, whose cause it has too. The cause may
	//     be an ErrFenced, such as a compactor's: ask for ErrClosed first;
	//   - else the store's error.
	//
	// A writer that was fenced, and has sent nothing after that, ends with ErrClosed: see
	// [Writer.Done]. Whether all appends are in the history, Close says.
	Err error
	// Lasted is the time from the end of Open until all outcomes were known.
	Lasted time.Duration
}

// Checkpoint is the event of [Hooks].Checkpoint.
type Checkpoint struct {
	Epoch fence.Epoch
	// Err is nil if the manifest was updated. After any other error than [ErrFenced] the next
	// checkpoint tries again.
	Err error
	// Took is the time of the update.
	Took time.Duration
	// Position and Offset are the acknowledged end that was to be noted.
	Position fence.Position
	Offset   uint64
}

// Acknowledgement describes an object that has become part of the history. It may hold many
// appends.
type Acknowledgement struct {
	// Position of the object data/<epoch>/<seq>; its name has 20 digits for each number.
	Position fence.Position
	First    uint64 // offset of the first record
	Records  int
	Bytes    int64 // of the object, as it is stored
	Payload  int64 // bytes before compression: the records with their lengths, or the edit
	// Took is the time from sending the object to acknowledging it. Answered is the time
	// until its own request was answered; the rest it waited for objects before it.
	Took, Answered time.Duration
}

// Progress says how much of the tail [Open] has read. Open begins at the newest checkpoint.
// How much there is shows only at the end: what the last leader wrote in one interval of
// checkpoints, if it made some.
type Progress struct {
	// Objects that were read, seals included, and the Records and Bytes in them. If a
	// compactor was quicker, Open begins again, and counts what it reads again.
	Objects int
	Records uint64
	Bytes   int64
	// Position and Offset after the last object.
	Position fence.Position
	Offset   uint64
	// Time at which its writer sent that object, by the writer's clock. The nearer to now,
	// the less there is to read.
	Time time.Time
}

func (p *Progress) add(s *chain.Step) {
	p.Objects++
	p.Records += uint64(s.Frame.Records)
	p.Bytes += s.Size
	p.Position, p.Offset, p.Time = s.To.Position, s.To.Offset, s.Frame.Time
}
