//go:build unix

package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

// db is a key-value store in the manner of SlateDB. The log in the object store is its
// write-ahead log, and reads are served from a table in memory. A node that takes over
// rebuilds the table from the log.
type db struct {
	w     *writer.Writer
	table map[string]string
	// puts counts all puts since the log began. Each put stores it as the cursor, so
	// a successor continues exactly where the history ends.
	puts uint64
}

// put is a record of the log.
type put struct {
	Key   string `json:"k"`
	Value string `json:"v"`
}

// openDB rebuilds the table from the log. It misses no put: opening the writer has
// sealed the log, so no earlier leader can add one.
func openDB(ctx context.Context, st store.Store, w *writer.Writer) (*db, error) {
	d := &db{w: w, table: map[string]string{}}
	if c := w.Recovered().Cursor; len(c) == 8 {
		d.puts = binary.BigEndian.Uint64(c)
	}
	err := replay(ctx, st, func(_ uint64, p put) error {
		d.table[p.Key] = p.Value
		return nil
	})
	return d, err
}

// put stores a value and returns its offset in the log. If the error is nil, the value
// is durable and every later leader will find it.
func (d *db) put(ctx context.Context, key, value string) (offset uint64, err error) {
	record, err := json.Marshal(put{key, value})
	if err != nil {
		return 0, err
	}
	cursor := binary.BigEndian.AppendUint64(nil, d.puts+1)
	offset, err = d.w.Append(ctx, [][]byte{record}, writer.Cursor(cursor))
	if err != nil {
		return 0, err
	}
	d.puts++
	d.table[key] = value
	return offset, nil
}

// replay reads all puts of the log in order.
func replay(ctx context.Context, st store.Store, f func(offset uint64, p put) error) error {
	r, err := reader.Open(ctx, st, nil)
	if err != nil {
		return err
	}
	for rec, err := range r.Read(ctx, 0) {
		if err != nil {
			return err
		}
		var p put
		if err := json.Unmarshal(rec.Value, &p); err != nil {
			return fmt.Errorf("record %d: %w", rec.Offset, err)
		}
		if err := f(rec.Offset, p); err != nil {
			return err
		}
	}
	return nil
}
