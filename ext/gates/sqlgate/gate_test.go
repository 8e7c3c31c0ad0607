package sqlgate_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/ext/gates/sqlgate"
	"github.com/fencepost/fencepost/fence"
)

// table is a database that knows the four statements of a gate, and no rollback. The module in
// integration/sqlgate tries real ones.
type table struct{ rows map[string]int64 }

func (d *table) Connect(context.Context) (driver.Conn, error) { return d, nil }
func (d *table) Driver() driver.Driver                        { return nil }
func (d *table) Prepare(string) (driver.Stmt, error)          { return nil, errors.New("not needed") }
func (d *table) Close() error                                 { return nil }
func (d *table) Begin() (driver.Tx, error)                    { return d, nil }
func (d *table) Commit() error                                { return nil }
func (d *table) Rollback() error                              { return nil }

func (d *table) ExecContext(_ context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	n := strings.Count(query, "?")
	if strings.Contains(query, "$1") {
		n = strings.Count(query, "$1") + strings.Count(query, "$2") - strings.Count(query, "<= $1")
	}
	if n != len(args) {
		return nil, fmt.Errorf("%q has %d parameters, not %d", query, n, len(args))
	}
	switch {
	case strings.HasPrefix(query, "CREATE TABLE IF NOT EXISTS "):
		return driver.RowsAffected(0), nil
	case strings.HasPrefix(query, "INSERT INTO "):
		d.rows[args[0].Value.(string)] += 0
		return driver.RowsAffected(1), nil
	}
	epoch, name := args[0].Value.(int64), args[1].Value.(string)
	old, ok := d.rows[name]
	if !ok || strings.Contains(query, "AND epoch <= ") && old > epoch {
		return driver.RowsAffected(0), nil
	}
	d.rows[name] = epoch
	return driver.RowsAffected(1), nil
}

func (d *table) QueryContext(_ context.Context, _ string, args []driver.NamedValue) (driver.Rows, error) {
	epoch, ok := d.rows[args[0].Value.(string)]
	return &rows{epoch, ok}, nil
}

type rows struct {
	epoch int64
	more  bool
}

func (r *rows) Columns() []string { return []string{"epoch"} }
func (r *rows) Close() error      { return nil }
func (r *rows) Next(to []driver.Value) error {
	if !r.more {
		return io.EOF
	}
	to[0], r.more = r.epoch, false
	return nil
}

// guard:sql-epoch. Without this check: the leader of epoch 2 has changed an account; a transaction of
// zombie Z, in epoch 1, arrives, sets the row back to 1, and overwrites the change.
func TestGate(t *testing.T) {
	for _, opts := range []*sqlgate.Options{nil, {Question: true}, {Table: "ops.gate"}} {
		db := sql.OpenDB(&table{map[string]int64{}})
		g, err := sqlgate.New("orders", opts)
		if err != nil {
			t.Fatal(err)
		}
		ran := 0
		do := func(e fence.Epoch) error {
			return g.Do(t.Context(), db, e, func(*sql.Tx) error { ran++; return nil })
		}
		if err := do(1); err == nil || !strings.Contains(err.Error(), "call Create") {
			t.Errorf("without a row: %v", err)
		}
		if err := g.Create(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		for _, e := range []fence.Epoch{1, 1, 5} {
			if err := do(e); err != nil {
				t.Error(err)
			}
		}
		if f, ok := errors.AsType[*fence.FencedError](do(4)); !ok || f.Epoch != 4 || f.By != 5 {
			t.Errorf("a zombie: %v", f)
		}
		if err := do(0); !errors.Is(err, fence.ErrFenced) {
			t.Errorf("no epoch: %v", err)
		}
		// guard:sql-bound. Without this check: one transaction has epoch 2⁶³−1 by mistake; from then on the gate
		// refuses each leader, for ever.
		if err := do(fence.MaxEpoch + 1); !errors.Is(err, fence.ErrLimit) {
			t.Errorf("%v", err)
		}
		if ran != 3 {
			t.Errorf("%d effects", ran)
		}
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []*sqlgate.Options{{Table: "x; DROP TABLE y"}, {Table: "a.b.c"}, {Table: "1"}} {
		if _, err := sqlgate.New("orders", o); !errors.Is(err, sqlgate.ErrOptions) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := sqlgate.New("", nil); !errors.Is(err, sqlgate.ErrOptions) {
		t.Errorf("%v", err)
	}
}
