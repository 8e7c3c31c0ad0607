package frame

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/fixture"
)

// chainBuilder writes objects that follow one another.
type chainBuilder struct {
	t  *testing.T
	at Point
}

func (c *chainBuilder) decode(b []byte) *Frame {
	c.t.Helper()
	f, err := Decode(b, fence.DefaultLimits())
	if err != nil {
		c.t.Fatal(err)
	}
	return f
}

func (c *chainBuilder) data(cursor []byte, records ...string) *Frame {
	c.t.Helper()
	b, _ := build(Header{Log: testLog, Position: c.at.Position, Offset: c.at.Offset, Prev: c.at.Prev}, Plain, cursor, records...)
	return c.step(c.decode(b))
}

func (c *chainBuilder) seal(next fence.Epoch) *Frame {
	c.t.Helper()
	return c.step(c.decode(sealFrame(Header{Log: testLog, Position: c.at.Position}, next)))
}

func (c *chainBuilder) step(f *Frame) *Frame {
	c.t.Helper()
	next, err := c.at.Next(testLog, f)
	if err != nil {
		c.t.Fatal(err)
	}
	if !c.at.Before(next) || next.Before(c.at) || !next.Valid() {
		c.t.Fatalf("%v does not lead on to %v", c.at.Position, next.Position)
	}
	c.at = next
	return f
}

func TestChain(t *testing.T) {
	c := &chainBuilder{t: t, at: Start()}
	at := func(epoch fence.Epoch, seq, offset uint64, cursor string, prev uint32) {
		t.Helper()
		want := Point{Position: fence.Position{Epoch: epoch, Seq: seq}, Offset: offset, Cursor: []byte(cursor), Prev: prev}
		if !c.at.Equal(want) {
			t.Errorf("at %+v, want %+v", c.at, want)
		}
	}
	at(0, 1, 0, "", 0)
	f := c.seal(3) // epochs 1 and 2 never opened
	at(3, 1, 0, "", f.Checksum())
	f = c.data(nil, "a", "b")
	at(3, 2, 2, "", f.Checksum())
	f = c.data([]byte("k1"), "c")
	at(3, 3, 3, "k1", f.Checksum())
	f = c.data(nil, "d") // says nothing of the cursor
	at(3, 4, 4, "k1", f.Checksum())
	f = c.seal(4) // epoch 4 opens and writes nothing
	at(4, 1, 4, "k1", f.Checksum())
	f = c.seal(9)
	at(9, 1, 4, "k1", f.Checksum())
	f = c.data([]byte("k2")) // only a cursor
	at(9, 2, 4, "k2", f.Checksum())
	f = c.data([]byte{}, "e") // takes it back
	at(9, 3, 5, "", f.Checksum())
}

// Two seals that differ only in their writer's nonce lead to chains that differ:
// the first data object after them tells which one it follows.
func TestDataTellsWhichSealItFollows(t *testing.T) {
	c := &chainBuilder{t: t, at: Start()}
	other := c.decode(sealFrame(Header{Log: testLog, Nonce: testNonce, Position: Genesis()}, 1))
	beside, err := c.at.Next(testLog, other)
	if err != nil {
		t.Fatal(err)
	}
	c.seal(1)
	f := c.data(nil, "x")
	_, err = beside.Next(testLog, f)
	fixture.WantErr(t, err, fence.ErrCorrupt, "it follows an object with checksum")
}

func TestNextErrors(t *testing.T) {
	at := Point{Position: fence.Position{Epoch: 7, Seq: 42}, Offset: 1000, Prev: 0xcafef00d, Cursor: []byte("c")}
	tests := []struct {
		name  string
		spoil func(*Header)
		seal  bool
		text  string
	}{
		{"log", func(h *Header) { h.Log[0]++ }, false, "it belongs to log 11111213"},
		{"seq", func(h *Header) { h.Position.Seq++ }, false, "it says that it is data/00000000000000000007/00000000000000000043"},
		{"epoch", func(h *Header) { h.Position.Epoch-- }, false, "it says that it is data/00000000000000000006/"},
		{"offset", func(h *Header) { h.Offset-- }, false, "its first offset is 999, the objects before it end at 1000"},
		{"previous", func(h *Header) { h.Prev = 1 }, false, "it follows an object with checksum 00000001, the one before it has cafef00d"},
		{"log of a seal", func(h *Header) { h.Log[0]++ }, true, "it belongs to log"},
		{"slot of a seal", func(h *Header) { h.Position.Seq++ }, true, "it says that it is"},
	}
	decode := func(h Header, seal bool) *Frame {
		b, _ := build(h, Plain, nil, "x")
		if seal {
			b = sealFrame(h, 8)
		}
		f, err := Decode(b, fence.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := testHeader()
			if _, err := at.Next(testLog, decode(h, tt.seal)); err != nil {
				t.Fatalf("the good one: %v", err)
			}
			tt.spoil(&h)
			got, err := at.Next(testLog, decode(h, tt.seal))
			fixture.WantErr(t, err, fence.ErrCorrupt, tt.text)
			fixture.WantErr(t, err, fence.ErrCorrupt, "data/00000000000000000007/00000000000000000042: ")
			if !got.Equal(at) {
				t.Errorf("the point beside the error is %+v", got)
			}
		})
	}
}

// A point outlives the frame's memory.
func TestNextKeepsItsOwnCursor(t *testing.T) {
	b, _ := build(testHeader(), Plain, []byte("cursor"), "x")
	f, err := Decode(b, fence.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	p, err := Point{Position: f.Position, Offset: f.Offset, Prev: f.Prev}.Next(testLog, f)
	clear(b)
	if err != nil || string(p.Cursor) != "cursor" {
		t.Errorf("%q, %v", p.Cursor, err)
	}
}

func TestPointEqual(t *testing.T) {
	p := Point{Position: fence.Position{Epoch: 1, Seq: 2}, Offset: 3, Cursor: []byte("c"), Prev: 4}
	for _, q := range []Point{
		{fence.Position{Epoch: 1, Seq: 3}, 3, []byte("c"), 4},
		{fence.Position{Epoch: 1, Seq: 2}, 4, []byte("c"), 4},
		{fence.Position{Epoch: 1, Seq: 2}, 3, []byte("d"), 4},
		{fence.Position{Epoch: 1, Seq: 2}, 3, []byte("c"), 5},
	} {
		if same := q; p.Equal(q) || !q.Equal(same) {
			t.Errorf("%+v", q)
		}
	}
	if (Point{}).Valid() || !Start().Valid() {
		t.Error("Valid")
	}
}

func TestPointJSON(t *testing.T) {
	p := Point{Position: fence.Position{Epoch: math.MaxUint64, Seq: 2}, Offset: math.MaxUint64, Cursor: []byte{0, 0xff}, Prev: math.MaxUint32}
	b, err := json.Marshal(p)
	want := `{"position":{"epoch":18446744073709551615,"seq":2},"offset":18446744073709551615,"cursor":"AP8=","prev":4294967295}`
	if err != nil || string(b) != want {
		t.Errorf("%s, %v, want %s", b, err, want)
	}
	for _, p := range []Point{p, Start(), {Position: Genesis(), Cursor: []byte{}}} {
		b, _ := json.Marshal(p)
		var q Point
		if err := json.Unmarshal(b, &q); err != nil || !q.Equal(p) {
			t.Errorf("%+v came back as %+v, %v", p, q, err)
		}
	}
}

// What a writer computes for its own object is what a reader arrives at.
func TestAfterAgreesWithNext(t *testing.T) {
	at := Point{Position: fence.Position{Epoch: 7, Seq: 42}, Offset: 1000, Prev: 0xcafef00d, Cursor: []byte("old")}
	for _, cursor := range [][]byte{nil, {}, []byte("new")} {
		b, h := build(testHeader(), Plain, cursor, "a", "b")
		checkAfter(t, at, b, &h, cursor)
	}
	h := testHeader()
	b := EncodeSeal(&h, 9)
	checkAfter(t, at, b, &h, nil)
	var edit Builder
	edit.SetEdit([]byte("{}"))
	h = testHeader()
	b = edit.Finish(&h, Zstd)
	checkAfter(t, at, b, &h, nil)
}

func checkAfter(t *testing.T, at Point, b []byte, h *Header, cursor []byte) {
	t.Helper()
	f, err := Decode(b, fence.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	want, err := at.Next(testLog, f)
	if got := at.After(h, cursor); err != nil || !got.Equal(want) {
		t.Errorf("After gives %+v, Next %+v, %v", got, want, err)
	}
}
