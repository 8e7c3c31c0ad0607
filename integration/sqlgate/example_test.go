package sqlgate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	"github.com/fencepost/fencepost/ext/gates/sqlgate"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store/memstore"
)

// A leader pays money. A zombie's payment is refused.
func Example() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		log.Fatal(err)
	}
	db.SetMaxOpenConns(1) // each connection has a memory of its own
	g, err := sqlgate.New("payments", nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := g.Create(ctx, db); err != nil {
		log.Fatal(err)
	}
	pay := func(e fence.Epoch) error {
		return g.Do(ctx, db, e, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS paid (epoch bigint)")
			return err
		})
	}
	fmt.Println(pay(1), pay(2), errors.Is(pay(1), fence.ErrFenced))
	// Output: <nil> <nil> true
}

// Whoever leads writes a report to a database. A zombie's transaction fails, although the
// zombie still believes that it leads.
func Example_leader() {
	ctx := context.Background()
	st := memstore.New(nil) // or store.Open(ctx, "s3://bucket/jobs")
	e, err := leader.New(st, "lock", &leader.Options{Identity: "worker-1"})
	if err != nil {
		log.Fatal(err)
	}
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		log.Fatal(err)
	}
	db.SetMaxOpenConns(1) // each connection has a memory of its own
	g, err := sqlgate.New("reports", nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := g.Create(ctx, db); err != nil {
		log.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE report (epoch bigint)"); err != nil {
		log.Fatal(err)
	}
	err = e.Run(ctx, func(ctx context.Context, t *leader.Term) error {
		return g.Do(ctx, db, t.Epoch(), func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO report (epoch) VALUES ($1)", t.Epoch())
			return err
		})
	})
	if err != nil {
		log.Fatal(err)
	}
	var epoch int
	err = db.QueryRowContext(ctx, "SELECT epoch FROM report").Scan(&epoch)
	fmt.Println("reported in epoch", epoch, err)
	// Output: reported in epoch 1 <nil>
}
