// Package sqlgate fences writes to a SQL database: it refuses the transactions of deposed
// leaders.
//
//	g, err := sqlgate.New("orders", nil)
//	err = g.Create(ctx, db) // once: the table and the row
//	err = g.Do(ctx, db, term.Epoch(), func(tx *sql.Tx) error {
//		_, err := tx.ExecContext(ctx, "UPDATE account SET balance = $1 WHERE id = $2", 10, 7)
//		return err
//	})
//
// A row keeps the highest epoch. Each transaction first raises it to its own epoch. That fails
// if it is higher already, and it locks the row. So no transaction of an earlier epoch commits
// after one of a later epoch, whenever its requests arrive.
//
// It is tried on PostgreSQL, at each isolation level, and on SQLite. Others must lock the row
// that an UPDATE changes until the transaction ends, and evaluate its condition on the newest
// committed row, or fail.
//
// A leader that is frozen in the middle of a transaction keeps the row locked. Its successor
// waits until the database ends that transaction. Let it do so: in PostgreSQL set
// idle_in_transaction_session_timeout.
package sqlgate
