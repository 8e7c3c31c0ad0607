//go:build recipes

package recipes

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

const killed = syscall.SIGKILL

func TestPostgres(t *testing.T) {
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if len(dirs) == 0 {
		t.Fatal("no PostgreSQL server here: make recipes installs it")
	}
	t.Setenv("PATH", dirs[len(dirs)-1]+":"+os.Getenv("PATH"))
	uid := os.Getuid()
	if uid == 0 { // PostgreSQL refuses root
		u, err := user.Lookup("postgres")
		if err != nil {
			t.Fatal(err)
		}
		uid, _ = strconv.Atoi(u.Uid)
	}
	p := newPlace(t, uint32(uid))
	p.replace = append(p.replace, "/archive/", p.path("archive")+"/")
	for _, dir := range []string{"archive/.keep", "archive/part/.keep", "archive/wal/.keep"} {
		p.write(dir, "")
	}
	for _, m := range []string{"a", "b"} {
		p.write(m+"/hostname", "#!/bin/sh\necho "+m+"\n")
	}
	run := func(machine, line string) string {
		t.Helper()
		r := p.start(machine, line)
		r.ends(0)
		return strings.TrimSpace(r.out.String())
	}
	data := func(m string) string { return p.path(m + "/data") }
	psql := func(m, sql string) *process {
		return p.start(m, `psql -X -A -t -q -v ON_ERROR_STOP=1 -h `+p.path(m)+` -U fencepost postgres -c "`+sql+`"`)
	}
	run("a", "initdb -D data -U fencepost -A trust --no-sync")
	conf := "listen_addresses = ''\nunix_socket_directories = '..'\n" // data is a server's working directory
	f := p.read("a/data/postgresql.conf")
	p.write("a/data/postgresql.conf", f+conf)
	if err := os.Chmod(data("a"), 0o700); err != nil {
		t.Fatal(err)
	}
	var command string
	for _, m := range []string{"a", "b"} {
		p.script("PostgreSQL: one archive, two primaries", 0, m+"/archive.sh")
		command = strings.Replace(short(p.script("PostgreSQL: one archive, two primaries", 1, m+"/primary.sh")), "--restart", "", 1)
	}

	ready := func(m string) func() bool {
		return func() bool {
			r := psql(m, "SELECT pg_is_in_recovery()")
			return r.status() == 0 && strings.TrimSpace(r.out.String()) == "f"
		}
	}
	archived := func() map[string]string {
		all := map[string]string{}
		entries, _ := os.ReadDir(p.path("archive/wal"))
		for _, e := range entries {
			all[e.Name()] = p.read("archive/wal/" + e.Name())
		}
		return all
	}
	switched := func(m string) {
		t.Helper()
		r := psql(m, "SELECT pg_walfile_name(pg_switch_wal())")
		r.ends(0)
		name := strings.TrimSpace(r.out.String())
		eventually(t, m+" archives "+name, func() bool { return archived()[name] != "" })
	}
	a := p.start("a", command, "PGDATA="+data("a"))
	eventually(t, "a is primary", ready("a"))
	run("b", "pg_basebackup -h "+p.path("a")+" -U fencepost -D data -R --no-sync --checkpoint=fast")
	psql("a", "CREATE TABLE orders (item text)").ends(0)
	psql("a", "INSERT INTO orders VALUES ('of a')").ends(0)
	switched("a")

	thaw := a.freeze()
	b := p.start("b", command, "PGDATA="+data("b"))
	eventually(t, "b is primary", ready("b"))
	psql("b", "INSERT INTO orders VALUES ('of b')").ends(0)
	switched("b")
	thaw()
	if s := a.status(); s == 0 {
		t.Errorf("a machine that was frozen and replaced says that all went well\n%s", a.out)
	}
	before := archived()

	// The old primary, as if nothing had killed it: its clients commit, and it archives.
	os.Remove(data("a") + "/postmaster.pid")
	zombie := p.start("a", "postgres -D data -c archive_mode=on -c archive_command='../archive.sh %p %f'", "FENCEPOST_EPOCH=1")
	eventually(t, "the zombie answers", ready("a"))
	psql("a", "INSERT INTO orders VALUES ('of a zombie')").ends(0)
	psql("a", "SELECT pg_switch_wal()").ends(0)
	eventually(t, "the zombie is refused", func() bool {
		r := psql("a", "SELECT failed_count > 0 FROM pg_stat_archiver")
		return r.status() == 0 && strings.TrimSpace(r.out.String()) == "t"
	})
	if !strings.Contains(zombie.out.String(), "exit code 77") {
		t.Errorf("the zombie's segment was not refused by its epoch:\n%s", zombie.out)
	}
	zombie.signal(syscall.SIGQUIT)
	zombie.status()
	switched("b")
	after := archived()
	for name, text := range before {
		if after[name] != text {
			t.Errorf("%s was overwritten", name)
		}
	}
	for name := range after {
		if before[name] == "" && strings.HasPrefix(name, "00000001") {
			t.Errorf("the zombie has archived %s", name)
		}
	}
	items := psql("b", "SELECT string_agg(item, ', ' ORDER BY item) FROM orders")
	items.ends(0)
	if got := strings.TrimSpace(items.out.String()); got != "of a, of b" {
		t.Errorf("the new primary has %q", got)
	}
	// Who led before cannot lead again as it is.
	b.signal(syscall.SIGTERM)
	b.status()
	again := p.start("a", command, "PGDATA="+data("a"))
	again.ends(1)
	if !strings.Contains(again.out.String(), "pg_basebackup") {
		t.Errorf("%s", again.out)
	}
}
