package delta_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/writer"
)

// parquetOf is a Parquet file in memory.
func parquetOf[T any](t *testing.T, rows ...T) *bytes.Reader {
	t.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[T](&b)
	_, err := w.Write(rows)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(b.Bytes())
}

// A file that is complete becomes a file of the table as it is, in one commit with rows and the cursor.
func TestWriteParquet(t *testing.T) {
	type more struct {
		Sum   float64 `parquet:"sum"`
		ID    int64   `parquet:"id"`
		Place string  `parquet:"place,optional"`
	}
	inLake(t, func(t *testing.T, k *lake) {
		p := k.publisher(nil, &delta.Options{Partition: []delta.Column{{Name: "day", Type: "date"}}})
		day := map[string]string{"day": "2026-11-25"}
		k.raw(bodyOf(parquetOf(t, order{ID: 1})), day)
		k.publish(p)
		w, err := delta.NewWriter(t.Context(), k.w, &delta.WriterOptions[order]{
			Compression: delta.Plain, Table: k.root, Settle: logtest.Quick, FileSize: 1024,
			Partition: func(*order) map[string]string { return day },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		big := make([]more, 1000) // larger than FileSize, and one file all the same
		for i := range big {
			big[i] = more{ID: int64(i), Sum: float64(i * i)}
		}
		file, empty := parquetOf(t, big...), parquetOf[order](t)
		err = errors.Join(
			w.Write(t.Context(), []order{{ID: 2}}),
			w.WriteParquet(t.Context(), file, file.Size(), day),
			w.WriteParquet(t.Context(), empty, empty.Size(), day),
		)
		if n := w.Pending(); err != nil || n != 1001 {
			t.Fatal(err, n)
		}
		if err := w.Commit(t.Context(), writer.Cursor([]byte("after both"))); err != nil {
			t.Fatal(err)
		}
		if n := len(k.live()); n != 3 {
			t.Errorf("there are %d files, want 3", n)
		}
		same := func(name string) bool { return bytes.Equal(k.Body("file/"+name), bodyOf(file)) }
		if !slices.ContainsFunc(k.live(), same) {
			t.Error("no file is the one that was given")
		}
		r := k.publish(p)
		adds := k.actions(r.Version, "add")
		if r.Files != 3 || len(adds) != 2 || !slices.ContainsFunc(adds, func(a map[string]any) bool {
			stats, _ := a["stats"].(string)
			return strings.Contains(stats, `"numRecords":1000`) && strings.Contains(stats, `"id":999`)
		}) {
			t.Errorf("%+v adds %v", r, adds)
		}
		next := k.Open(nil)
		defer k.Close(next)
		if at := string(next.Recovered().Cursor); at != "after both" {
			t.Errorf("the cursor is %q", at)
		}
	})
}

// brokenAt is a file whose bytes from an offset on cannot be read.
type brokenAt struct {
	*bytes.Reader
	until int64
}

var errDisk = errors.New("the disk is broken")

func (b brokenAt) ReadAt(p []byte, at int64) (int, error) {
	if at < b.until {
		return 0, errDisk
	}
	return b.Reader.ReadAt(p, at)
}

// What cannot be a file of the table is refused before anything is uploaded, and the Writer goes on.
func TestWriteParquetRefuses(t *testing.T) {
	good := parquetOf(t, order{ID: 1})
	long := bodyOf(good)
	long[len(long)-6] = 0xff // the footer claims more than there is
	junk := bytes.Clone(bodyOf(good))
	for i := len(junk) - 40; i < len(junk)-8; i++ {
		junk[i] = 0xff
	}
	inLake(t, func(t *testing.T, k *lake) {
		k.rows(1)
		k.publish(k.publisher(nil, nil))
		before := k.Keys("file/")
		w, err := delta.NewWriter(t.Context(), k.w, &delta.WriterOptions[struct {
			ID int64 `parquet:"id"`
		}]{Table: k.root, Settle: logtest.Quick})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		for name, c := range map[string]struct {
			file *bytes.Reader
			is   error
			says string
		}{
			"nothing":           {bytes.NewReader(nil), nil, "it has 0 bytes"},
			"text":              {bytes.NewReader([]byte("just some text, long enough")), nil, `it ends with "ough"`},
			"half a file":       {bytes.NewReader(bodyOf(good)[:good.Size()/2]), nil, "no Parquet file"},
			"a footer too long": {bytes.NewReader(long), nil, "its footer claims"},
			"a footer of junk":  {bytes.NewReader(junk), nil, "no Parquet file"},
			"not the rows' schema": {parquetOf(t, struct {
				ID string `parquet:"id"`
			}{"x"}), delta.ErrSchema, "the column id is string, and long in the table"},
			"not the table's schema": {parquetOf(t, struct {
				ID  int64  `parquet:"id"`
				Sum string `parquet:"sum"`
			}{1, "x"}), delta.ErrSchema, "the column sum is string, and double in the table"},
			"a type that Delta has not": {parquetOf(t, struct {
				N uint32 `parquet:"n"`
			}{1}), delta.ErrSchema, "unsigned"},
		} {
			err := w.WriteParquet(t.Context(), c.file, c.file.Size(), nil)
			if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: got %v, want %v that says %q", name, err, c.is, c.says)
			}
		}
		if after := k.Keys("file/"); !slices.Equal(before, after) || w.Pending() != 0 {
			t.Errorf("there were %v, and now there are %v", before, after)
		}
		if err := errors.Join(w.WriteParquet(t.Context(), good, good.Size(), nil), w.Commit(t.Context())); err != nil || len(k.live()) != 2 {
			t.Errorf("after that: %v, %v", err, k.live())
		}

		// A file that cannot be read to its end is no file of the table.
		err = w.WriteParquet(t.Context(), brokenAt{good, 100}, good.Size(), nil)
		if !errors.Is(err, errDisk) {
			t.Errorf("a broken disk: %v", err)
		}
		if err := w.Commit(t.Context()); !errors.Is(err, errDisk) || len(k.live()) != 2 {
			t.Errorf("a broken disk, and then: %v, %v", err, k.live())
		}
	})
}

func bodyOf(r *bytes.Reader) []byte {
	b := make([]byte, r.Size())
	_, _ = r.ReadAt(b, 0)
	return b
}
