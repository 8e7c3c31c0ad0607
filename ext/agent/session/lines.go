package session

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/fencepost/fencepost/fence"
)

// maxLine is how long a line of JSON may be, in bytes.
const maxLine = 64 << 20

// Lines carries messages and events as lines of JSON.
type Lines struct {
	in   *bufio.Reader
	from *stoppable
	line int
	long []byte

	out io.Writer
	enc *json.Encoder
	buf bytes.Buffer
}

// NewLines returns a carrier that reads messages from in, and writes events to out. A goroutine that reads in ends when
// that does, or with the process: nothing can interrupt a read from a terminal.
func NewLines(in io.Reader, out io.Writer) *Lines {
	from := &stoppable{from: in, stopped: make(chan struct{})}
	l := &Lines{in: bufio.NewReaderSize(from, 64<<10), from: from, out: out}
	l.enc = json.NewEncoder(&l.buf)
	l.enc.SetEscapeHTML(false)
	return l
}

// Stop makes Receive return what was read already, and then io.EOF.
func (l *Lines) Stop() { l.from.stop() }

// recordIn is a record in a message. One of the three is set, as in what fencepost cat --json prints.
type recordIn struct {
	Value  json.RawMessage `json:"value"`
	Text   *string         `json:"text"`
	Base64 *[]byte         `json:"base64"`
	Offset json.RawMessage `json:"offset"` // of cat, and ignored here
	Time   json.RawMessage `json:"time"`
}

func (r *recordIn) bytes() (b []byte, n int) {
	if r.Value != nil {
		b, n = r.Value, n+1
	}
	if r.Text != nil {
		b, n = []byte(*r.Text), n+1
	}
	if r.Base64 != nil {
		b, n = *r.Base64, n+1
	}
	return b, n
}

// lineIn is a message.
type lineIn struct {
	recordIn
	Records []recordIn        `json:"records"`
	Files   []string          `json:"files"`
	Values  map[string]string `json:"values"`
	Remove  []string          `json:"remove"`
	Cursor  *string           `json:"cursor"`
	Cursor2 *[]byte           `json:"cursor_base64"`
	Flush   bool              `json:"flush"`
	Resign  bool              `json:"resign"`
	Alive   bool              `json:"progress"`
}

// Receive implements [Client].
func (l *Lines) Receive() (Message, error) {
	for {
		line, err := l.next()
		if err != nil {
			return Message{}, err
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		m, ok := quick(line)
		if ok {
			return m, nil
		}
		m, err = decode(line)
		if err != nil {
			err = fmt.Errorf("%w: line %d: %w", ErrInvalid, l.line, err)
		}
		return m, err
	}
}

// next returns the next line. The last one may lack its newline, but is left out if Stop has cut it.
func (l *Lines) next() ([]byte, error) {
	l.line++
	l.long = l.long[:0]
	for {
		part, err := l.in.ReadSlice('\n')
		if len(l.long)+len(part) > maxLine {
			return nil, fmt.Errorf("%w: line %d is longer than %d bytes; send smaller records, or fewer in one line", ErrInvalid, l.line, maxLine)
		}
		switch {
		case err == nil && len(l.long) == 0:
			return part, nil
		case errors.Is(err, bufio.ErrBufferFull), err == nil, errors.Is(err, io.EOF):
			l.long = append(l.long, part...)
		default:
			return nil, err
		}
		if err == nil || errors.Is(err, io.EOF) && len(l.long) > 0 && !l.from.over() {
			return l.long, nil
		} else if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
	}
}

// quick decodes the messages that come most often, as clients write them: {"text":"…"}, with a cursor or without. It says
// nothing of all others.
func quick(line []byte) (m Message, ok bool) {
	rest, ok := bytes.CutPrefix(bytes.TrimSuffix(line, []byte("\n")), []byte(`{"text":"`))
	if !ok || !utf8.Valid(line) {
		return m, false
	}
	plain := func() (b []byte) {
		i := bytes.IndexByte(rest, '"')
		if ok = ok && i >= 0; !ok {
			return nil
		}
		b, rest = rest[:i], rest[i+1:]
		for _, c := range b {
			ok = ok && c != '\\' && c >= ' '
		}
		return b
	}
	text := plain()
	if after, has := bytes.CutPrefix(rest, []byte(`,"cursor":"`)); has && ok {
		rest = after
		m.Cursor = append([]byte{}, plain()...)
	}
	m.Records = [][]byte{append([]byte{}, text...)}
	return m, ok && string(rest) == "}"
}

func decode(line []byte) (m Message, err error) {
	if !utf8.Valid(line) {
		return m, errors.New(`it is not UTF-8; send such bytes as "base64"`)
	}
	var in lineIn
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return m, fmt.Errorf(`%w; a message is an object such as {"text":"a record","cursor":"7"}`, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return m, errors.New("it has more than one JSON object; write a newline after each")
	}
	single, n := in.bytes()
	if n > 1 {
		return m, errors.New(`a record is one of "value", "text" and "base64", not several of them`)
	}
	if n == 1 {
		m.Records = [][]byte{single}
	}
	for i := range in.Records {
		b, n := in.Records[i].bytes()
		if n != 1 {
			return m, fmt.Errorf(`record %d of "records" must have one of "value", "text" and "base64"`, i)
		}
		m.Records = append(m.Records, b)
	}
	if n == 1 && in.Records != nil {
		return m, errors.New(`it has a record, and "records" besides; put all of one atom into "records"`)
	}
	if in.Files != nil || in.Remove != nil {
		m.Commit = &Commit{Files: in.Files, Values: in.Values, Remove: in.Remove}
		if m.Records != nil {
			return m, errors.New(`it has records and files; a line has one or the other`)
		}
	} else if in.Values != nil {
		return m, errors.New(`"values" are those of "files", and there are none`)
	}
	switch {
	case in.Cursor != nil && in.Cursor2 != nil:
		return m, errors.New(`it has "cursor" and "cursor_base64"; send one of them`)
	case in.Cursor != nil:
		m.Cursor = []byte(*in.Cursor)
	case in.Cursor2 != nil:
		m.Cursor = *in.Cursor2
	}
	m.Flush, m.Resign = in.Flush, in.Resign
	if m.alive() && !in.Alive {
		return m, errors.New(`it says nothing; send {"text":…}, {"records":[…]}, {"files":[…]}, {"cursor":…}, {"flush":true}, {"resign":true} or {"progress":true}`)
	}
	return m, whole(line, &in)
}

// whole refuses half of a surrogate pair, such as \ud800. The decoder would put another character in its place, and what is
// read back would not be what was sent.
//
// guard:lines-whole. A line whose text cannot be kept byte for byte is refused.
//
//mutant:replace strings.ContainsRune(text, utf8.RuneError) => strings.ContainsRune(text, utf8.RuneError) && false
func whole(line []byte, in *lineIn) error {
	texts := []*string{in.Text, in.Cursor}
	for _, r := range in.Records {
		texts = append(texts, r.Text)
	}
	for _, t := range texts {
		if t == nil {
			continue
		}
		if text := *t; strings.ContainsRune(text, utf8.RuneError) && !bytes.ContainsRune(line, utf8.RuneError) && !bytes.Contains(bytes.ToLower(line), []byte(`\ufffd`)) {
			return errors.New(`it has half of a surrogate pair, which is no text; send such bytes as "base64"`)
		}
	}
	return nil
}

// lineOut is an event.
type lineOut struct {
	Event        string      `json:"event,omitempty"`
	Epoch        fence.Epoch `json:"epoch,omitempty"`
	For          string      `json:"for,omitempty"`
	Until        time.Time   `json:"until,omitzero"`
	First        *uint64     `json:"first,omitempty"`
	End          *uint64     `json:"end,omitempty"`
	Appends      int         `json:"appends,omitempty"`
	Cursor       *string     `json:"cursor,omitempty"`
	Base64       *[]byte     `json:"cursor_base64,omitempty"`
	Code         Code        `json:"code,omitempty"`
	Why          string      `json:"why,omitempty"`
	Unknown      *int        `json:"unknown,omitempty"`
	NotCommitted *int        `json:"not_committed,omitempty"`
}

// Send implements [Client].
func (l *Lines) Send(e Event) error {
	out := lineOut{Event: string(e.Kind), Epoch: e.Epoch, For: e.Holder, Until: e.Until.Truncate(time.Second), Appends: e.Appends, Code: e.Code, Why: e.Why}
	switch e.Kind {
	case Committed:
		out.Event, out.First, out.End = "", &e.First, &e.End
	case Leading, Flushed, Ended:
		out.End = &e.End
	case Lost:
		out.End, out.Unknown, out.NotCommitted = &e.End, &e.Unknown, &e.NotCommitted
	case Waiting, Draining, Trouble:
	}
	if text := string(e.Cursor); utf8.ValidString(text) && (e.Cursor != nil || e.Kind == Leading) {
		out.Cursor = &text
	} else if e.Cursor != nil {
		out.Base64 = &e.Cursor
	}
	l.buf.Reset()
	if err := l.enc.Encode(out); err != nil {
		return err
	}
	_, err := l.out.Write(l.buf.Bytes())
	return err
}

// stoppable is a reader that ends at once when it is stopped.
type stoppable struct {
	from    io.Reader
	once    sync.Once
	stopped chan struct{}
	buf     []byte
	reading chan read
}

type read struct {
	n   int
	err error
}

func (s *stoppable) stop() { s.once.Do(func() { close(s.stopped) }) }

func (s *stoppable) over() bool {
	select {
	case <-s.stopped:
		return true
	default:
		return false
	}
}

// Read implements io.Reader.
func (s *stoppable) Read(p []byte) (int, error) {
	if s.over() {
		return 0, io.EOF
	}
	if s.reading == nil {
		s.buf, s.reading = make([]byte, len(p)), make(chan read, 1)
	}
	buf := s.buf[:min(len(p), len(s.buf))]
	go func() {
		n, err := s.from.Read(buf)
		s.reading <- read{n, err}
	}()
	select {
	case r := <-s.reading:
		return copy(p, buf[:r.n]), r.err
	case <-s.stopped:
		return 0, io.EOF
	}
}
