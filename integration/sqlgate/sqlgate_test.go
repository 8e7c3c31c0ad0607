package sqlgate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/fencepost/fencepost/ext/gates/sqlgate"
	"github.com/fencepost/fencepost/fence"
)

// postgres is where the test's own server listens; "" if there is none.
var postgres string

func TestMain(m *testing.M) {
	stop := startPostgres()
	code := m.Run()
	stop()
	os.Exit(code)
}

// startPostgres starts a server in a directory of its own, which it removes at the end.
func startPostgres() (stop func()) {
	bin := find()
	if bin == "" {
		return func() {}
	}
	dir, err := os.MkdirTemp("", "sqlgate-")
	if err != nil {
		panic(err)
	}
	attr := &syscall.SysProcAttr{}
	if os.Getuid() == 0 { // the server refuses to run as root
		u, err := user.Lookup("postgres")
		if err != nil {
			return func() {}
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(dir, uid, gid); err != nil {
			panic(err)
		}
	}
	run := func(name string, args ...string) {
		c := exec.Command(filepath.Join(bin, name), args...)
		c.SysProcAttr, c.Dir = attr, dir
		if out, err := c.CombinedOutput(); err != nil {
			panic(fmt.Sprintf("%s: %v: %s", name, err, out))
		}
	}
	data := filepath.Join(dir, "data")
	run("initdb", "-D", data, "-U", "fencepost", "-A", "trust", "--no-sync")
	run("pg_ctl", "-D", data, "-w", "-l", filepath.Join(dir, "log"), "-o", "-c listen_addresses= -c fsync=off -k "+dir, "start")
	postgres = "host=" + dir + " user=fencepost dbname=postgres"
	return func() {
		run("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
		_ = os.RemoveAll(dir)
	}
}

// find returns the directory of the server's programs.
func find() string {
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	for _, dir := range append(dirs, filepath.SplitList(os.Getenv("PATH"))...) {
		if _, err := os.Stat(filepath.Join(dir, "initdb")); err == nil {
			if _, err := os.Stat(filepath.Join(dir, "postgres")); err == nil {
				return dir
			}
		}
	}
	return ""
}

// each runs a test on each database. Every connection waits for locks.
func each(t *testing.T, test func(t *testing.T, db *sql.DB, opts *sqlgate.Options)) {
	t.Run("sqlite", func(t *testing.T) {
		test(t, open(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "db")+"?_pragma=busy_timeout(60000)&_pragma=journal_mode(wal)"), &sqlgate.Options{Question: true})
	})
	t.Run("postgres", func(t *testing.T) {
		if postgres == "" {
			if os.Getenv("CI") == "true" {
				t.Fatal("no PostgreSQL server here: install the package postgresql")
			}
			t.Skip("no PostgreSQL server here")
		}
		test(t, open(t, "pgx", postgres), &sqlgate.Options{Table: "gate_" + strings.ToLower(strings.ReplaceAll(strings.Split(t.Name(), "/")[0], "/", "_"))})
	})
}

func open(t *testing.T, driver, source string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func gate(t *testing.T, db *sql.DB, opts *sqlgate.Options) *sqlgate.Gate {
	t.Helper()
	g, err := sqlgate.New("orders", opts)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := g.Create(t.Context(), db); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

func must(t *testing.T, db *sql.DB, query string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query); err != nil {
		t.Fatal(err)
	}
}

func TestGate(t *testing.T) {
	each(t, func(t *testing.T, db *sql.DB, opts *sqlgate.Options) {
		g := gate(t, db, opts)
		must(t, db, "DROP TABLE IF EXISTS account")
		must(t, db, "CREATE TABLE account (id int, balance int)")
		must(t, db, "INSERT INTO account VALUES (1, 0)")
		pay := func(e fence.Epoch, amount int) error {
			return g.Do(t.Context(), db, e, func(tx *sql.Tx) error {
				_, err := tx.ExecContext(t.Context(), fmt.Sprintf("UPDATE account SET balance = %d", amount))
				return err
			})
		}
		for _, c := range []struct {
			epoch  fence.Epoch
			by     fence.Epoch
			amount int
		}{{1, 0, 10}, {1, 0, 11}, {3, 0, 30}, {2, 3, 20}, {1, 3, 12}, {3, 0, 31}, {0, 1, 5}, {fence.MaxEpoch, 0, 90}, {4, fence.MaxEpoch, 40}} {
			err := pay(c.epoch, c.amount)
			f, fenced := errors.AsType[*fence.FencedError](err)
			if fenced != (c.by != 0) || fenced && (f.By != c.by || f.Epoch != c.epoch) || !fenced && err != nil {
				t.Errorf("epoch %d: %v", c.epoch, err)
			}
		}
		var balance int
		if err := db.QueryRowContext(t.Context(), "SELECT balance FROM account").Scan(&balance); err != nil || balance != 90 {
			t.Errorf("balance %d, %v", balance, err)
		}
		if err := pay(fence.MaxEpoch+1, 1); !errors.Is(err, fence.ErrLimit) {
			t.Errorf("%v", err)
		}
		// What fails is rolled back, and the epoch with it.
		boom := errors.New("boom")
		other, err := sqlgate.New("other", opts)
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Do(t.Context(), db, 1, nil); err == nil || !strings.Contains(err.Error(), "call Create") {
			t.Errorf("no row: %v", err)
		}
		if err := other.Create(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		if err := other.Do(t.Context(), db, 9, func(*sql.Tx) error { return boom }); !errors.Is(err, boom) {
			t.Error(err)
		}
		if err := other.Do(t.Context(), db, 1, func(*sql.Tx) error { return nil }); err != nil {
			t.Errorf("an effect that failed has raised the epoch: %v", err)
		}
	})
}

// Six replicas begin at once in a new database, and each creates the gate.
func TestCreateAtOnce(t *testing.T) {
	each(t, func(t *testing.T, db *sql.DB, opts *sqlgate.Options) {
		for round := range 5 {
			o := *opts
			o.Table = fmt.Sprintf("at_once_%d", round)
			must(t, db, "DROP TABLE IF EXISTS "+o.Table)
			g, err := sqlgate.New("orders", &o)
			if err != nil {
				t.Fatal(err)
			}
			var all sync.WaitGroup
			for range 6 {
				all.Go(func() {
					if err := g.Create(t.Context(), db); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
		}
	})
}

// Leaders of many epochs write at the same time. In the order of commits, epochs never fall.
func TestRace(t *testing.T) {
	each(t, func(t *testing.T, db *sql.DB, opts *sqlgate.Options) {
		for _, level := range []sql.IsolationLevel{sql.LevelDefault, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
			if opts.Question && level != sql.LevelDefault {
				continue // SQLite has one
			}
			must(t, db, "DROP TABLE IF EXISTS "+cmpTable(opts))
			g := gate(t, db, opts)
			must(t, db, "DROP TABLE IF EXISTS history")
			must(t, db, "CREATE TABLE history (n int, epoch bigint)")
			var all sync.WaitGroup
			var mu sync.Mutex
			outcomes := map[string]int{}
			for epoch := range 6 {
				all.Go(func() {
					for range 20 {
						err := race(t.Context(), db, level, g, fence.Epoch(epoch+1))
						mu.Lock()
						switch {
						case err == nil:
							outcomes["committed"]++
						case errors.Is(err, fence.ErrFenced):
							outcomes["fenced"]++
						default:
							outcomes["failed"]++ // could not serialize, or database is locked
						}
						mu.Unlock()
					}
				})
			}
			all.Wait()
			rows, err := db.QueryContext(t.Context(), "SELECT epoch FROM history ORDER BY n")
			if err != nil {
				t.Fatal(err)
			}
			last, n := int64(0), 0
			for ; rows.Next(); n++ {
				var e int64
				if err := rows.Scan(&e); err != nil {
					t.Fatal(err)
				}
				if e < last {
					t.Errorf("%v: epoch %d wrote after %d", level, e, last)
				}
				last = e
			}
			if err := errors.Join(rows.Err(), rows.Close()); err != nil {
				t.Fatal(err)
			}
			if n != outcomes["committed"] || n == 0 {
				t.Errorf("%v: %d rows, %v", level, n, outcomes)
			}
		}
	})
}

func cmpTable(opts *sqlgate.Options) string {
	if opts.Table != "" {
		return opts.Table
	}
	return sqlgate.DefaultTable
}

// race appends to the history in one transaction.
func race(ctx context.Context, db *sql.DB, level sql.IsolationLevel, g *sqlgate.Gate, e fence.Epoch) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := g.Enter(ctx, tx, e); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO history SELECT count(*), %d FROM history", e)); err != nil {
		return err
	}
	return tx.Commit()
}

// A leader is frozen between its check and its write. Its successor waits, or the write is refused;
// it never lands afterwards.
func TestFrozenInside(t *testing.T) {
	each(t, func(t *testing.T, db *sql.DB, opts *sqlgate.Options) {
		g := gate(t, db, opts)
		must(t, db, "DROP TABLE IF EXISTS history")
		must(t, db, "CREATE TABLE history (n int, epoch bigint)")
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if err := g.Enter(t.Context(), tx, 1); err != nil {
			t.Fatal(err)
		}
		successor := make(chan error, 1)
		go func() { successor <- race(t.Context(), db, sql.LevelDefault, g, 2) }()
		select {
		case err := <-successor:
			t.Fatalf("the successor did not wait: %v", err)
		case <-time.After(200 * time.Millisecond): // it can only pass too easily
		}
		if _, err := tx.ExecContext(t.Context(), "INSERT INTO history VALUES (0, 1)"); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := <-successor; err != nil {
			t.Fatal(err)
		}
		if err := race(t.Context(), db, sql.LevelDefault, g, 1); !errors.Is(err, fence.ErrFenced) {
			t.Errorf("the zombie: %v", err)
		}
	})
}

// A script does the same with psql: see docs/exec.md.
func TestPsql(t *testing.T) {
	psql, err := exec.LookPath("psql")
	if err != nil || postgres == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("no psql, or no server: install the package postgresql")
		}
		t.Skip("no psql, or no server")
	}
	db := open(t, "pgx", postgres)
	must(t, db, "DROP TABLE IF EXISTS fencepost_gate")
	gate(t, db, nil)
	must(t, db, "DROP TABLE IF EXISTS report")
	must(t, db, "CREATE TABLE report (epoch bigint)")
	page, err := os.ReadFile("../../docs/exec.md")
	if err != nil {
		t.Fatal(err)
	}
	_, script, found := strings.Cut(string(page), "```sql\n")
	script, _, _ = strings.Cut(script, "```")
	if !found {
		t.Fatal("docs/exec.md has no script")
	}
	for _, c := range []struct {
		epoch  string
		status int
	}{{"4", 0}, {"4", 0}, {"7", 0}, {"5", 3}} {
		cmd := exec.Command(psql, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-v", "epoch="+c.epoch, postgres)
		cmd.Stdin = strings.NewReader(script)
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != c.status {
			t.Errorf("epoch %s: status %d, %s", c.epoch, got, out)
		}
	}
	var n int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM report").Scan(&n); err != nil || n != 3 {
		t.Errorf("%d rows, %v", n, err)
	}
}
