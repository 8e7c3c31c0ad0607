//go:build recipes

package recipes

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

func TestLitestream(t *testing.T) {
	need(t, "litestream", "sqlite3")
	p := newPlace(t, uint32(os.Getuid()))
	server := `#!/bin/sh
n=0
touch began
while sleep 0.2; do
  n=$((n + 1))
  sqlite3 -cmd '.timeout 5000' app.db "INSERT INTO orders VALUES ('$NAME $FENCEPOST_EPOCH $n')"
done
`
	var command string
	for _, m := range []string{"a", "b", "c"} {
		command = strings.Replace(short(p.script("SQLite with Litestream", 0, m+"/app.sh")), "--restart", "", 1)
		p.write(m+"/server", server)
	}
	rows := func(machine, where string) int {
		r := p.start(machine, `sqlite3 -cmd '.timeout 5000' app.db "SELECT count(*) FROM orders WHERE item LIKE '`+where+`'"`)
		if r.status() != 0 {
			return 0 // not there yet
		}
		n, _ := strconv.Atoi(strings.TrimSpace(r.out.String()))
		return n
	}
	replicated := func(epoch, where string) int {
		os.Remove(p.path("reader/app.db"))
		if p.start("reader", "litestream restore -o app.db file://"+p.path("bucket/app-replica/"+epoch)).status() != 0 {
			return 0
		}
		return rows("reader", where)
	}
	a := p.start("a", command, "NAME=a")
	eventually(t, "a's server works", func() bool { return a.began(p, "a") })
	eventually(t, "rows of a are replicated", func() bool { return replicated("1", "a %") >= 3 })
	sure := replicated("1", "a %")

	thaw := a.freeze()
	b := p.start("b", command, "NAME=b")
	eventually(t, "b's server works", func() bool { return b.began(p, "b") })
	if got := rows("b", "a %"); got < sure {
		t.Errorf("b begins with %d rows of a, and %d were replicated", got, sure)
	}
	thaw()
	if s := a.status(); s == 0 {
		t.Errorf("a machine that was frozen and replaced says that all went well\n%s", a.out)
	}
	// The old leader, as if nothing had killed it: it replicates on.
	p.start("a", `sqlite3 app.db "INSERT INTO orders VALUES ('zombie')"`).ends(0)
	p.start("a", "litestream replicate -once app.db file://"+p.path("bucket/app-replica/1")).ends(0)
	if replicated("1", "zombie") != 1 {
		t.Fatal("the test is wrong: the zombie has replicated nothing")
	}
	p.start("a", "fencepost gate set --epoch 1 file://"+p.path("bucket/app")+" replica file://"+p.path("bucket/app-replica/1")).ends(77)

	eventually(t, "rows of b are replicated", func() bool { return replicated("2", "b %") >= 3 })
	sure = replicated("2", "b %")
	b.signal(killed)
	c := p.start("c", command, "NAME=c")
	eventually(t, "c's server works", func() bool { return c.began(p, "c") })
	if rows("c", "zombie") != 0 || rows("c", "b %") < sure || rows("c", "a %") == 0 {
		t.Errorf("c begins with %d rows of a zombie, %d of b's %d, %d of a", rows("c", "zombie"), rows("c", "b %"), sure, rows("c", "a %"))
	}
}
