package session_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/ext/agent/session"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/store"
)

// broken is a store whose disk is full until it is mended.
type broken struct {
	store.Store
	mended atomic.Bool
}

func (b *broken) Put(ctx context.Context, key string, body []byte, o *store.PutOptions) (store.Info, error) {
	if !b.mended.Load() {
		return store.Info{}, &store.Error{Op: "put", Key: key, Err: errors.New("no space left on device")}
	}
	return b.Store.Put(ctx, key, body, o)
}

func TestLines(t *testing.T) {
	in := `{"text":"a\n","cursor":"1"}

{"value":{"n": 1},"offset":7,"time":"2026-11-29T00:00:00Z"}
{"records":[{"base64":"/wA="},{"text":""}],"cursor_base64":"/w=="}
{"files":["a.parquet"],"values":{"day":"1"},"remove":["file/1"],"cursor":""}
{"text":"\ufffd\ud83d\ude00\\ud800"}
{"flush":true}
{"progress":true}
{"resign":true}`
	l := session.NewLines(strings.NewReader(in), io.Discard)
	var got []session.Message
	for {
		m, err := l.Receive()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, m)
	}
	if len(got) != 8 {
		t.Fatalf("%d messages", len(got))
	}
	for i, want := range [][]string{{"a\n"}, {`{"n": 1}`}, {"\xff\x00", ""}, nil, {"\ufffd😀\\ud800"}, nil, nil, nil} {
		if len(got[i].Records) != len(want) {
			t.Fatalf("message %d: %q", i, got[i].Records)
		}
		for j := range want {
			if string(got[i].Records[j]) != want[j] {
				t.Errorf("message %d: %q", i, got[i].Records)
			}
		}
	}
	if string(got[0].Cursor) != "1" || got[1].Cursor != nil || string(got[2].Cursor) != "\xff" || got[3].Cursor == nil {
		t.Errorf("%+v", got)
	}
	if c := got[3].Commit; c == nil || c.Files[0] != "a.parquet" || c.Values["day"] != "1" || c.Remove[0] != "file/1" {
		t.Errorf("%+v", c)
	}
	if !got[5].Flush || !got[7].Resign {
		t.Errorf("%+v", got)
	}
}

// guard:lines-whole. Without this check: a program in Python reads a file name that is no UTF-8, and sends it as \udcff; the
// decoder makes U+FFFD of it, and what is read back is another name, silently.
func TestBadLines(t *testing.T) {
	for name, c := range map[string]struct{ line, says string }{
		"no JSON":                   {`a record`, `such as {"text":"a record"`},
		"an array":                  {`["a"]`, "a message is an object"},
		"two objects":               {`{"text":"a"}{"text":"b"}`, "a newline after each"},
		"an object and a brace":     {`{"text":"a"}}`, "a newline after each"},
		"cut":                       {`{"text":"a`, "unexpected"},
		"an unknown member":         {`{"txt":"a"}`, `unknown field "txt"`},
		"nothing":                   {`{}`, "it says nothing"},
		"two values":                {`{"text":"a","base64":"YQ=="}`, "not several"},
		"a record and records":      {`{"text":"a","records":[{"text":"b"}]}`, "besides"},
		"records and files":         {`{"text":"a","files":["x"]}`, "one or the other"},
		"an empty record":           {`{"records":[{}]}`, "record 0"},
		"values without files":      {`{"text":"a","values":{}}`, "there are none"},
		"two cursors":               {`{"text":"a","cursor":"1","cursor_base64":"YQ=="}`, "one of them"},
		"no base64":                 {`{"base64":"*"}`, "illegal base64"},
		"no UTF-8":                  {"{\"text\":\"\xff\"}", "base64"},
		"half a surrogate pair":     {`{"text":"\udcff"}`, "base64"},
		"half of one in a list":     {`{"records":[{"text":"\uD800x"}]}`, "base64"},
		"half beside a whole":       {`{"records":[{"text":"\udcff"},{"text":"\ufffd"}]}`, "base64"},
		"two first halves":          {`{"text":"\ud83d\ud83d"}`, "base64"},
		"half before a pair":        {`{"text":"\ude00\ud83d\ude00"}`, "base64"},
		"halves in a wrong order":   {`{"text":"\udc00\ud800"}`, "base64"},
		"halves apart":              {`{"text":"\ud800 \udc00"}`, "base64"},
		"half of one beside U+FFFD": {`{"text":"\ud800","cursor":"\ufffd"}`, "base64"},
		"half in a cursor":          {`{"text":"a","cursor":"\udcff\ufffd"}`, "base64"},
		"half in a value":           {`{"files":["a"],"values":{"day":"\udcff"}}`, "base64"},
		"half in a file's name":     {`{"files":["\udcff"]}`, "base64"},
		"an unknown one inside":     {`{"records":[{"txt":"a"}]}`, `unknown field "txt"`},
		"records that are none":     {`{"records":{"text":"a"}}`, "is a list"},
	} {
		t.Run(name, func(t *testing.T) {
			l := session.NewLines(strings.NewReader(`{"flush":true}`+"\n"+c.line), io.Discard)
			if _, err := l.Receive(); err != nil {
				t.Fatal(err)
			}
			if _, err := l.Receive(); !errors.Is(err, session.ErrInvalid) || !strings.Contains(err.Error(), "line 2: ") || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v", err)
			}
		})
	}
}

// What only looks like half of a pair is kept.
func TestWholeLines(t *testing.T) {
	for line, want := range map[string]string{
		`{"text":"\\\\udcff \ufffd"}`:           "\\\\udcff \ufffd",
		`{"text":"\\n\ud83d\ude00\\\""}`:        "\\n😀\\\"",
		`{"value":"\udcff"}`:                    `"\udcff"`,
		`{"records":[{"text":"\uFFFD\u0061"}]}`: "\ufffda",
	} {
		m, err := session.NewLines(strings.NewReader(line), io.Discard).Receive()
		if err != nil || string(m.Records[0]) != want {
			t.Errorf("%s: %q, %v", line, m.Records, err)
		}
	}
	// The whole line is not looked through once more for each record: that would take days.
	line := `{"records":[` + strings.Repeat(`{"text":"\ufffd"},`, 100_000) + `{"text":""}]}`
	if m, err := session.NewLines(strings.NewReader(line), io.Discard).Receive(); err != nil || len(m.Records) != 100_001 {
		t.Error(err)
	}
}

// A line of many records that are none takes little memory.
func TestNoRecords(t *testing.T) {
	line := `{"records":[` + strings.Repeat(`{},`, 5<<20) + `{}]}`
	test.Affords(t, len(line), 12, 1<<20, func() {
		if _, err := session.NewLines(strings.NewReader(line), io.Discard).Receive(); !errors.Is(err, session.ErrInvalid) {
			t.Error(err)
		}
	})
}

// A line without an end takes a bounded memory.
func TestLongLine(t *testing.T) {
	endless := io.MultiReader(strings.NewReader(`{"text":"`), zeros{})
	if _, err := session.NewLines(endless, io.Discard).Receive(); !errors.Is(err, session.ErrInvalid) || !strings.Contains(err.Error(), "line 1 is longer than 67108864 bytes") {
		t.Errorf("%v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

// After Stop come the whole lines that were read, and nothing else.
func TestStopLines(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	l := session.NewLines(r, io.Discard)
	go func() { _, _ = io.WriteString(w, `{"text":"a"}`+"\n"+`{"text":"b"}`+"\n"+`{"text":"c`) }()
	var got []string
	for {
		m, err := l.Receive()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			break
		}
		got = append(got, string(m.Records[0]))
		l.Stop()
	}
	if strings.Join(got, "") != "ab" {
		t.Errorf("%q", got)
	}
	// A read that waits ends too.
	l = session.NewLines(r, io.Discard)
	go l.Stop()
	if _, err := l.Receive(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

func TestEvents(t *testing.T) {
	var out bytes.Buffer
	l := session.NewLines(strings.NewReader(""), &out)
	for _, e := range []session.Event{
		{Kind: session.Waiting, Holder: "host/1/x", Epoch: 3, Until: time.Unix(1, 5).UTC()},
		{Kind: session.Leading, Epoch: 4, Cursor: []byte("7"), End: 9},
		{Kind: session.Leading, Epoch: 1},
		{Kind: session.Committed, First: 0, End: 2, Appends: 1},
		{Kind: session.Committed, First: 9, End: 9, Appends: 1, Cursor: []byte("\xff")},
		{Kind: session.Flushed, End: 9},
		{Kind: session.Draining},
		{Kind: session.Lost, Code: session.CodeFenced, Why: "<other>", End: 9, Unknown: 2},
	} {
		if err := l.Send(e); err != nil {
			t.Fatal(err)
		}
	}
	want := `{"event":"waiting","epoch":3,"for":"host/1/x","until":"1970-01-01T00:00:01Z"}
{"event":"leading","epoch":4,"end":9,"cursor":"7"}
{"event":"leading","epoch":1,"end":0,"cursor":""}
{"first":0,"end":2,"appends":1}
{"first":9,"end":9,"appends":1,"cursor_base64":"/w=="}
{"event":"flushed","end":9}
{"event":"draining"}
{"event":"lost","end":9,"code":"fenced","why":"<other>","unknown":2,"not_committed":0}
`
	if out.String() != want {
		t.Errorf("%s", out.String())
	}
}
