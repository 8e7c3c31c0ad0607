package history

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/bench/result"
	"github.com/fencepost/fencepost/internal/test/s3stub"
	"github.com/fencepost/fencepost/store"
	_ "github.com/fencepost/fencepost/store/s3store"
)

var (
	results = result.DirFlag()
	page    = result.New("Manifest, compactor and reader", "history")
)

// Row is a line of the table.
type Row = result.Row

// Roles of the processes that tests start.
const (
	role       = "FENCEPOST_BENCH_ROLE"
	serves     = "serve"
	compacts   = "compact"
	historians = "histories"
)

func TestMain(m *testing.M) {
	flag.Parse()
	for name, value := range map[string]string{
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench",
	} {
		os.Setenv(name, value)
	}
	switch os.Getenv(role) {
	case serves:
		fmt.Println(s3stub.Start(nil).StoreURL())
		_, _ = io.Copy(io.Discard, os.Stdin) // until its parent ends
		os.Exit(0)
	case compacts:
		if err := compactAlone(os.Stdout); err != nil {
			panic(err)
		}
		os.Exit(0)
	case historians:
		os.Exit(m.Run())
	}
	status := m.Run()
	if status == 0 && inFull() {
		page.Text = "Objects that are not folded are read in order. Plain GETs in any order use each object as soon as it is here, so they need less memory for those that come early. " +
			"The rows after them compare like with like: there plain GETs use their objects in order too."
		if err := page.Write(*results); err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = 1
		}
	}
	os.Exit(status)
}

// inFull reports whether the test measures all.
func inFull() bool { return *results != "" }

// add adds rows to the page.
func add(t *testing.T, rows ...Row) {
	t.Helper()
	page.Add(t.Name(), rows...)
	for _, r := range rows {
		t.Logf("%-60s %10.3f  %s", r.Name, r.Value, r.Note)
	}
}

// exact adds a row whose goal must be reached on any machine.
func exact(t *testing.T, r Row) {
	t.Helper()
	r.Ratio = true
	add(t, r)
	if r.Missed() {
		t.Errorf("%s: %v", r.Name, r.Value)
	}
}

// self returns a command that runs this test binary in some role.
func self(t *testing.T, as string, env ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(append(os.Environ(), role+"="+as), env...)
	cmd.Stderr = os.Stderr
	return cmd
}

// server is an S3 endpoint in a process of its own.
type server struct{ *url.URL }

func serve(t *testing.T) server {
	t.Helper()
	cmd := self(t, serves)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return server{u}
}

// folder opens a new folder and returns its URL too.
func (s server) folder(t *testing.T) (store.Store, string) {
	t.Helper()
	u := *s.URL
	u.Path = "/" + uuid.NewString()
	st, err := store.Open(t.Context(), u.String())
	if err != nil {
		t.Fatal(err)
	}
	return st, u.String()
}

// restore deletes the objects that are not in before. That undoes a compaction, because a
// compaction prunes nothing in so short a time.
func restore(t *testing.T, st store.Store, before []store.Info) {
	t.Helper()
	had := make(map[string]bool, len(before))
	for _, info := range before {
		had[info.Key] = true
	}
	now, _ := listed(t, st, "")
	var added []string
	for _, info := range now {
		if !had[info.Key] {
			added = append(added, info.Key)
		}
	}
	if kept := len(now) - len(added); kept != len(before) {
		t.Fatalf("of %d objects only %d are left: a compaction has pruned", len(before), kept)
	}
	if err := st.Delete(t.Context(), added...); err != nil {
		t.Fatal(err)
	}
}

// cpuTime returns the processor time of this process, without the endpoint's. Apart from
// the caches, it does not depend on other load.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

func least(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}
