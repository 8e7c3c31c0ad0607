package sqlgate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"

	"github.com/fencepost/fencepost/fence"
)

// ErrOptions: an option cannot work.
var ErrOptions = errors.New("sqlgate: invalid options")

// DefaultTable is where gates are kept, a row for each.
const DefaultTable = "fencepost_gate"

// Options of a gate. The zero value works, and so does nil.
type Options struct {
	// Table is the table of gates, DefaultTable by default. It may begin with a schema and a dot.
	Table string
	// Question writes parameters as ? and not as $1. SQLite knows both.
	Question bool
}

var tableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$`)

// Validate returns all faults, each an [ErrOptions]. nil is valid.
func (o *Options) Validate() error {
	if o != nil && o.Table != "" && !tableName.MatchString(o.Table) {
		return fmt.Errorf("%w: Table %q: it needs letters, digits and underscores, with one dot at most", ErrOptions, o.Table)
	}
	return nil
}

// Gate guards what belongs to one name in a database. It keeps nothing in memory, and is safe for
// concurrent use.
type Gate struct {
	name                           string
	create, insert, raise, highest string
}

// New returns the gate of a name. It does no I/O.
func New(name string, opts *Options) (*Gate, error) {
	if name == "" {
		return nil, fmt.Errorf("%w: the gate has no name", ErrOptions)
	}
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	table, one, two, again := DefaultTable, "$1", "$2", "$1"
	if opts != nil && opts.Table != "" {
		table = opts.Table
	}
	if opts != nil && opts.Question {
		one, two, again = "?", "?", "?"
	}
	return &Gate{
		name:   name,
		create: "CREATE TABLE IF NOT EXISTS " + table + " (name varchar(200) PRIMARY KEY, epoch bigint NOT NULL)",
		insert: "INSERT INTO " + table + " (name, epoch) VALUES (" + one + ", 0) ON CONFLICT (name) DO NOTHING",
		// guard:sql-epoch. A transaction may raise a gate's row to its own epoch only if the row has no
		// higher epoch; otherwise the gate refuses the transaction.
		//
		//mutant:replace " AND epoch <= " + again => " AND 0 <= " + again
		raise:   "UPDATE " + table + " SET epoch = " + one + " WHERE name = " + two + " AND epoch <= " + again,
		highest: "SELECT epoch FROM " + table + " WHERE name = " + one,
	}, nil
}

// Create makes the table and the row if they are not there. Any number of processes may call it at once. The row must
// stay for as long as there may be zombies.
func (g *Gate) Create(ctx context.Context, db *sql.DB) error {
	_, failed := db.ExecContext(ctx, g.create)
	// Of several at once PostgreSQL lets one create the table, and the others fail in spite of IF NOT EXISTS. Then the
	// table is there, so what counts is whether the row can be made.
	if _, err := db.ExecContext(ctx, g.insert, g.name); err != nil {
		if failed != nil {
			return fmt.Errorf("sqlgate: creating the table: %w", failed)
		}
		return fmt.Errorf("sqlgate: creating the row: %w", err)
	}
	return nil
}

// Enter lets a transaction of an epoch through, or refuses it with a fence.FencedError. Call it
// first in the transaction, and roll back after an error. An epoch above fence.MaxEpoch is a fence.ErrLimit.
func (g *Gate) Enter(ctx context.Context, tx *sql.Tx, e fence.Epoch) error {
	switch {
	case e == 0:
		return &fence.FencedError{Epoch: e, By: 1}
	case e > fence.MaxEpoch:
		// guard:sql-bound. An epoch that no election has is refused, and not remembered.
		return fmt.Errorf("sqlgate: %w: epoch %d is above %d, and no election has such an epoch", fence.ErrLimit, e, fence.MaxEpoch)
	}
	args := []any{int64(e), g.name}
	if g.raise[len(g.raise)-1] == '?' {
		args = append(args, int64(e))
	}
	result, err := tx.ExecContext(ctx, g.raise, args...)
	if err != nil {
		return fmt.Errorf("sqlgate: %w", err)
	}
	if n, err := result.RowsAffected(); err != nil || n == 1 {
		return err
	}
	var by int64
	switch err := tx.QueryRowContext(ctx, g.highest, g.name).Scan(&by); {
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("sqlgate: there is no row for %q: call Create once", g.name)
	case err != nil:
		return fmt.Errorf("sqlgate: %w", err)
	}
	return &fence.FencedError{Epoch: e, By: fence.Epoch(by)}
}

// Do runs effect in a transaction of its own, after Enter, and commits it. After an error it
// rolls back. If the error is one of the commit, the effect may have taken place.
func (g *Gate) Do(ctx context.Context, db *sql.DB, e fence.Epoch, effect func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("sqlgate: %w", err)
	}
	defer func() { _ = tx.Rollback() }()
	if err := g.Enter(ctx, tx, e); err != nil {
		return err
	}
	if err := effect(tx); err != nil {
		return err
	}
	return tx.Commit()
}
