package delta

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test"
)

// small is a state with one of each.
func small() *state {
	s := newState()
	s.version, s.protocol = 3, ours()
	s.meta = &metaData{ID: "id", Name: "name", Format: provider{Provider: "parquet", Options: map[string]string{}}, Schema: newSchema(column("id", DataType{Name: "long"})).String(), Partition: []string{"day"}, Config: configOf(DefaultRetention), CreatedTime: 5}
	day := "2026-11-23"
	for _, f := range []*file{{path: "1/a.parquet", size: 1, modified: 2, partition: map[string]*string{"day": &day}, stats: `{"numRecords":1}`}, {path: "1/b.parquet", partition: map[string]*string{"day": nil}}} {
		f.log = fence.ID{1}.String()
		s.files[f.path] = f
	}
	s.txns["x"], s.domains["fencepost.x"] = 7, "{}"
	s.gone["1/c.parquet"] = &remove{Path: "1/c.parquet", Deleted: 9, DataChange: true, Extended: true, Size: 4}
	s.sum = s.total()
	return s
}

func TestCheckpoint(t *testing.T) {
	s := small()
	body, err := encodeCheckpoint(s, 0)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeCheckpoint(3, body)
	if err != nil {
		t.Fatal(err)
	}
	if got.proof() != s.proof() || len(got.gone) != 1 || got.gone["1/c.parquet"].Deleted != 9 {
		t.Errorf("got %+v, want %+v", got, s)
	}
	if body, err = encodeCheckpoint(s, 9); err != nil {
		t.Fatal(err)
	}
	if got, err = decodeCheckpoint(3, body); err != nil || len(got.gone) != 0 {
		t.Errorf("a file that was removed long ago is in the checkpoint: %v, %v", got.gone, err)
	}
}

// FuzzCheckpoint: whatever the bytes, there is a state whose checksum is right, or an error. What that
// takes is bounded.
func FuzzCheckpoint(f *testing.F) {
	body, err := encodeCheckpoint(small(), 0)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Add([]byte("PAR1PAR1"))
	pages := page2(smallRows, 0, 2, nil, run(smallRows, 0), nil)
	f.Add(withPages(f, "add.path", 0, nil, pages...))
	f.Fuzz(func(t *testing.T, body []byte) {
		var s *state
		var err error
		n := test.Allocated(func() { s, err = decodeCheckpoint(3, body) })
		switch {
		case n > checkpointBound(len(body)):
			t.Errorf("%d bytes took %d", len(body), n)
		case err != nil && !errors.Is(err, ErrDamaged):
			t.Errorf("%v", err)
		case err == nil && s.sum != s.total():
			t.Error("the checksum is wrong")
		}
	})
}

// FuzzCommit: whatever the bytes, the state after them has the checksum that is computed anew.
func FuzzCommit(f *testing.F) {
	s := small()
	body, err := encodeCommit([]action{
		{Info: &commitInfo{Fencepost: &proof{}}}, {Protocol: ours()}, {Meta: s.meta}, {Txn: &txn{App: "y", Version: 1}}, {Domain: &domain{Domain: "d", Config: "c"}},
		{Remove: s.files["1/a.parquet"].remove(5, true)}, {Add: (&file{path: "2/x", log: fence.ID{1}.String()}).add(true)},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Add([]byte(`{"add":{"path":"../x"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var actions []action
		var err error
		if n := test.Allocated(func() { actions, err = decodeCommit("key", body) }); n > 2*(commitMemory+commitFactor*int64(len(body))) {
			t.Errorf("%d bytes took %d", len(body), n)
		}
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Error(err)
			}
			return
		}
		s := small()
		if s.apply(actions) == nil && s.sum != s.total() {
			t.Errorf("the checksum is not that of the state")
		}
	})
}

// FuzzFooter: whatever the bytes, there is a schema or an error. What that takes is bounded.
func FuzzFooter(f *testing.F) {
	var b bytes.Buffer
	w := parquet.NewGenericWriter[row](&b)
	if _, err := w.Write([]row{{Txn: &rowTxn{App: "a"}}}); err != nil {
		f.Fatal(err)
	}
	if err := w.Close(); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, end []byte) {
		if len(end) < 12 {
			return
		}
		var foot *Footer
		var err error
		if n := test.Allocated(func() { foot, err = decodeFooter(end, int64(len(end))) }); n > footerBound(len(end)) {
			t.Errorf("%d bytes took %d", len(end), n)
		}
		if err == nil && (foot.Schema == nil || statsText(foot) == "") {
			t.Error("neither an error nor a schema")
		}
	})
}

// FuzzSchema: whatever the text of a schema, reading it takes a bounded amount.
func FuzzSchema(f *testing.F) {
	f.Add(small().meta.Schema)
	f.Add(strings.Repeat(`{"type":{"type":"array","elementType":`, 100))
	f.Fuzz(func(t *testing.T, text string) {
		if n := test.Allocated(func() { _, _ = ParseSchema(text) }); n > 1<<20+200*int64(len(text)) {
			t.Errorf("%d bytes took %d", len(text), n)
		}
	})
}
