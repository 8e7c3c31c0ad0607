package session

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"
	"unicode/utf16"
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
	Text   *text           `json:"text"`
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

// text is a string that is kept byte for byte.
type text string

var errHalf = errors.New(`it has half of a surrogate pair, which is no text; send such bytes as "base64"`)

// UnmarshalJSON refuses half of a surrogate pair, such as \ud800. The decoder would put another character in its place, and what
// is read back would not be what was sent.
func (t *text) UnmarshalJSON(b []byte) error {
	// guard:lines-whole. A line whose text cannot be kept byte for byte is refused.
	//
	//mutant:replace if half(b) => if half(b) && false
	if half(b) {
		return errHalf
	}
	return json.Unmarshal(b, (*string)(t))
}

// half reports whether a string of JSON has half of a surrogate pair.
func half(b []byte) bool {
	for i := bytes.IndexByte(b, '\\'); i >= 0 && i+1 < len(b); {
		end := i + 2
		if b[i+1] == 'u' && i+6 <= len(b) {
			end = i + 6
			switch first := utf16of(b[i:]); {
			case !utf16.IsSurrogate(first):
			case utf16.DecodeRune(first, utf16of(b[end:])) == utf8.RuneError:
				return true
			default:
				end += 6
			}
		}
		next := bytes.IndexByte(b[end:], '\\')
		if i = end + next; next < 0 {
			return false
		}
	}
	return false
}

// utf16of is the half of a pair with which b begins, as \ud83d; 0 if there is none.
func utf16of(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0
	}
	n, _ := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(n)
}

// atom are the records of a message. They are decoded one by one: a record that is decoded needs ten times the memory of the
// shortest one in a line.
type atom [][]byte

// UnmarshalJSON implements json.Unmarshaler.
func (a *atom) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if first, err := d.Token(); err != nil || first != json.Delim('[') {
		return errors.Join(errors.New(`"records" is a list`), err)
	}
	for *a = (*a)[:0]; d.More(); {
		var r recordIn
		if err := d.Decode(&r); err != nil {
			return err
		}
		record, n := r.bytes()
		if n != 1 {
			return fmt.Errorf(`record %d of "records" must have one of "value", "text" and "base64"`, len(*a))
		}
		*a = append(*a, record)
	}
	return nil
}

// lineIn is a message.
type lineIn struct {
	recordIn
	Records *atom           `json:"records"`
	Files   []text          `json:"files"`
	Values  map[string]text `json:"values"`
	Remove  []text          `json:"remove"`
	Cursor  *text           `json:"cursor"`
	Cursor2 *[]byte         `json:"cursor_base64"`
	Flush   bool            `json:"flush"`
	Resign  bool            `json:"resign"`
	Alive   bool            `json:"progress"`
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
	upTo := func() (b []byte) {
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
	record := upTo()
	if after, has := bytes.CutPrefix(rest, []byte(`,"cursor":"`)); has && ok {
		rest = after
		m.Cursor = append([]byte{}, upTo()...)
	}
	m.Records = [][]byte{append([]byte{}, record...)}
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
	switch {
	case n == 1 && in.Records != nil:
		return m, errors.New(`it has a record, and "records" besides; put all of one atom into "records"`)
	case in.Records != nil && len(*in.Records) > 0:
		m.Records = *in.Records
	}
	if in.Files != nil || in.Remove != nil {
		m.Commit = &Commit{Files: plain(in.Files), Remove: plain(in.Remove)}
		for name, value := range in.Values {
			if m.Commit.Values == nil {
				m.Commit.Values = map[string]string{}
			}
			m.Commit.Values[name] = string(value)
		}
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
	return m, nil
}

func plain(all []text) (out []string) {
	for _, t := range all {
		out = append(out, string(t))
	}
	return out
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
	if plain := string(e.Cursor); utf8.ValidString(plain) && (e.Cursor != nil || e.Kind == Leading) {
		out.Cursor = &plain
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
