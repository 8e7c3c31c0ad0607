package cat

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/reader"
)

// encoder prints a record.
type encoder func(w io.Writer, r reader.Record) error

// encoders are the values of cat --format.
var encoders = map[string]encoder{
	"lines": func(w io.Writer, r reader.Record) error {
		_, err := w.Write(r.Value)
		if err == nil && !bytes.HasSuffix(r.Value, []byte("\n")) {
			_, err = w.Write([]byte("\n"))
		}
		return err
	},
	"raw": func(w io.Writer, r reader.Record) error {
		_, err := w.Write(r.Value)
		return err
	},
	"frames": func(w io.Writer, r reader.Record) error {
		if _, err := w.Write(binary.BigEndian.AppendUint32(nil, uint32(len(r.Value)))); err != nil {
			return err
		}
		_, err := w.Write(r.Value)
		return err
	},
	"json": func(w io.Writer, r reader.Record) error { return encodeJSON(w, r, false) },
}

// schema is the help about records in JSON.
const schema = `A line of JSON has "offset", "time", and one of these: "value" if the record is a JSON
document, which is then part of the line, without the white space in it; "text"
if it is other text in UTF-8; "base64" if it is neither. With --exact there is no
"value", so that no byte is lost.`

// exactHelp is the help of --exact.
const exactHelp = `never print "value", so that no byte is lost`

// recordLine is a record in JSON. One of the last three is set.
type recordLine struct {
	Offset uint64          `json:"offset"`
	Time   time.Time       `json:"time"`
	Value  json.RawMessage `json:"value,omitempty"`
	Text   *string         `json:"text,omitempty"`
	Base64 *[]byte         `json:"base64,omitempty"`
}

// encodeJSON prints a record as the schema says.
func encodeJSON(w io.Writer, r reader.Record, exact bool) error {
	l := recordLine{Offset: r.Offset, Time: r.Time}
	switch {
	case !exact && utf8.Valid(r.Value) && json.Valid(r.Value):
		l.Value = bytes.TrimSpace(r.Value)
	case utf8.Valid(r.Value):
		s := string(r.Value)
		l.Text = &s
	default:
		l.Base64 = &r.Value
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(l)
	if err == nil {
		_, err = w.Write(kit.HarmlessJSON(b.Bytes()))
	}
	return err
}

// gather is how long a record that is followed waits for others, so that they are printed
// in one write.
const gather = 5 * time.Millisecond

// gathering is a buffered writer for things that come one by one: none waits for the next one
// for longer than gather.
type gathering struct {
	mu   sync.Mutex
	out  *bufio.Writer
	due  *time.Timer // nil: nothing waits
	over bool        // nothing is flushed any more
	fail func(error)
	// flushing is called before a flush; what it returns, after that has succeeded.
	flushing func() (flushed func())
}

// newGathering returns a writer to w. Fail is called with the error of a write that Write did not
// report.
func newGathering(w *bufio.Writer, fail func(error), flushing func() func()) *gathering {
	return &gathering{out: w, fail: fail, flushing: flushing}
}

func (l *gathering) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.due == nil {
		l.due = time.AfterFunc(gather, l.flush)
	}
	return l.out.Write(b)
}

func (l *gathering) flush() {
	l.mu.Lock()
	if l.over { // stop came when this had begun: the caller flushes at the same time
		l.mu.Unlock()
		return
	}
	l.due = nil
	flushed := l.flushing()
	err := l.out.Flush()
	l.mu.Unlock()
	if err == nil {
		flushed()
	}
	if err != nil {
		l.fail(err)
	}
}

// stop ends the flushes; the caller flushes what is left.
func (l *gathering) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.due != nil {
		l.due.Stop()
	}
	l.due, l.over = nil, true
}
