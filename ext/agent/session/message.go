package session

import (
	"context"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/writer"
)

// Message is what a client sends: an append, a commit, a flush or a resignation. Without any of these it
// only shows that the client is alive.
type Message struct {
	// Records are appended in one atom, with the cursor if there is one.
	Records [][]byte
	// Commit changes the table, with the cursor if there is one.
	Commit *Commit
	// Cursor is the client's position after this message; nil: it stays as it is.
	Cursor []byte
	// Flush asks for an event when all that was sent before is in the history.
	Flush bool
	// Resign asks for a hand-over to whoever waits.
	Resign bool
	// Do is called with the writer, in the order of the messages, before anything else that the message says.
	Do func(ctx context.Context, w *writer.Writer) error
}

// alive reports whether the message says nothing else.
func (m *Message) alive() bool {
	return m.Records == nil && m.Commit == nil && m.Cursor == nil && !m.Flush && !m.Resign && m.Do == nil
}

// Commit is a change of the log's table of files.
type Commit struct {
	// Files are names that Options.Upload understands: those of local files, or of parts of the stream.
	Files []string
	// Values are those of the columns by which the table is partitioned, for each of the files.
	Values map[string]string
	// Remove are keys of files of the table.
	Remove []string
}

// Kind says what has happened.
type Kind string

// The kinds of events.
const (
	// Waiting: another process leads: Holder, in Epoch. If it has crashed, until Until at most.
	Waiting Kind = "waiting"
	// Leading: the term has begun: Epoch, the Cursor that was committed last, and First, the offset of the next record.
	Leading Kind = "leading"
	// Committed: the next Appends messages are in the history for ever, the records First to End-1.
	Committed Kind = "committed"
	// Flushed: all before a flush is in the history, which ends at End.
	Flushed Kind = "flushed"
	// Draining: the term is about to end, since the process was told to end or the client has resigned.
	Draining Kind = "draining"
	// Trouble: the store has not answered for a while, and is tried again; Why.
	Trouble Kind = "trouble"
	// Ended: the session is over, and all that was sent is in the history.
	Ended Kind = "ended"
	// Lost: the session is over. Code and Why say why; the next Unknown messages may be in the history, and the
	// NotCommitted after them are not.
	Lost Kind = "lost"
)

// Event is what a client is told.
type Event struct {
	Kind       Kind
	Epoch      fence.Epoch
	Holder     string
	Until      time.Time
	Cursor     []byte
	First, End uint64
	Appends    int

	Code                  Code
	Why                   string
	Unknown, NotCommitted int
}

// merge adds the commit after e to it, and reports whether it is one.
func (e *Event) merge(next Event) bool {
	if e.Kind != Committed || next.Kind != Committed {
		return false
	}
	e.End = next.End
	e.Appends += next.Appends
	if next.Cursor != nil {
		e.Cursor = next.Cursor
	}
	return true
}

// Client is a carrier of messages and events. One goroutine calls Receive, another one Send.
type Client interface {
	// Receive returns the next message; io.EOF when the client has no more, and after Stop when all that has
	// arrived was returned. An error that is an [ErrInvalid] is the client's fault.
	Receive() (Message, error)
	// Stop makes Receive return soon. It may be called twice.
	Stop()
	// Send returns when the client, or what is between, has taken the event.
	Send(e Event) error
}
