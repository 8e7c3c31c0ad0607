package sqlgate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/fence/sqlgate"
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
