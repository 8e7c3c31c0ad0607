//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package dirstore

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/store"
)

// Tests of several processes start this test binary again; see child.

const childEnv = "FENCEPOST_DIRSTORE_CHILD"

func TestMain(m *testing.M) {
	if role := os.Getenv(childEnv); role != "" {
		if err := child(role, os.Args[1], os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(test.OffDisk(m))
}

// child is what a process of a test does. It speaks to the test in lines.
func child(role, dir string, args []string) error {
	ctx := context.Background()
	s, err := Open(dir, nil)
	if err == nil {
		err = s.prepare()
	}
	if err != nil {
		return err
	}
	switch role {
	case "worker":
		return work(ctx, s, args[0])
	case "racer":
		return raceByOrder(ctx, s)
	case "stopper":
		// Stop at the first call that the arguments name; go on when continued.
		// Only then do what is asked.
		call, path, op := args[0], args[1], args[2:]
		stopped := false
		s.calls.before = func(c, p string) error {
			if c == call && strings.Contains(p, path) && !stopped {
				stopped = true
				return stopHere()
			}
			return nil
		}
		return do(ctx, s, op)
	}
	return fmt.Errorf("no role %q", role)
}

// do performs one operation and says how it went.
func do(ctx context.Context, s *Store, op []string) error {
	var err error
	switch op[0] {
	case "list":
		for _, e := range s.List(ctx, op[1], nil) {
			err = e
		}
	case "swap":
		var obj *store.Object
		if obj, err = s.Get(ctx, op[1], nil); err == nil {
			_ = obj.Body.Close()
			_, err = s.Put(ctx, op[1], []byte(op[2]), &store.PutOptions{If: store.IfMatch(obj.Version)})
		}
	case "upload":
		_, err = s.Upload(ctx, op[1], strings.NewReader(op[2]), &store.UploadOptions{Create: true})
	case "delete":
		err = s.Delete(ctx, op[1])
	default:
		err = fmt.Errorf("no operation %q", op[0])
	}
	fmt.Println(store.OutcomeOf(err))
	return nil
}

// work creates, swaps and deletes until it is killed, and says what was
// acknowledged: "+ key sum" and "- key".
func work(ctx context.Context, s *Store, id string) error {
	shared := "shared/counter"
	for i := 0; ; i++ {
		key := fmt.Sprintf("w/%s/%d", id, i)
		body := checked(rand.IntN(20_000))
		if _, err := s.Put(ctx, key, body, &store.PutOptions{If: store.IfAbsent()}); err != nil {
			return err
		}
		fmt.Printf("+ %s %08x\n", key, sum(body))
		if i%3 == 0 {
			up := checked(rand.IntN(600_000))
			if _, err := s.Upload(ctx, key+".up", strings.NewReader(string(up)), nil); err != nil {
				return err
			}
			fmt.Printf("+ %s %08x\n", key+".up", sum(up))
		}
		obj, err := s.Get(ctx, shared, nil)
		if err != nil {
			return err
		}
		_ = obj.Body.Close()
		if _, err := s.Put(ctx, shared, checked(rand.IntN(5000)), &store.PutOptions{If: store.IfMatch(obj.Version)}); err != nil && store.OutcomeOf(err) != store.Refused {
			return err
		}
		if i%4 == 3 {
			gone := fmt.Sprintf("w/%s/%d", id, i-2)
			fmt.Printf("? %s\n", gone) // from here on it may be gone
			if err := s.Delete(ctx, gone); err != nil {
				return err
			}
			fmt.Printf("- %s\n", gone)
		}
	}
}

func checked(size int) []byte {
	body := make([]byte, size)
	for i := range body {
		body[i] = byte(rand.Uint32())
	}
	return binary.LittleEndian.AppendUint32(body, crc32.ChecksumIEEE(body))
}

func sum(body []byte) uint32 {
	if len(body) < 4 || crc32.ChecksumIEEE(body[:len(body)-4]) != binary.LittleEndian.Uint32(body[len(body)-4:]) {
		return 0
	}
	return crc32.ChecksumIEEE(body)
}

// raceByOrder does what it reads, a line at a time: "create key body" or "swap
// key version body".
func raceByOrder(ctx context.Context, s *Store) error {
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		f := strings.Fields(in.Text())
		cond := store.IfAbsent()
		if f[0] == "swap" {
			cond = store.IfMatch(store.Version(f[3]))
		}
		_, err := s.Put(ctx, f[1], []byte(f[2]), &store.PutOptions{If: cond})
		fmt.Println(store.OutcomeOf(err))
	}
	return in.Err()
}

// process is a running child.
type process struct {
	*exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
}

func start(t *testing.T, role, dir string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{dir}, args...)...)
	cmd.Env = append(os.Environ(), childEnv+"="+role)
	cmd.Stderr = os.Stderr
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
	p := &process{Cmd: cmd, in: in, lines: bufio.NewScanner(out)}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return p
}

// line is the next line that the child says.
func (p *process) line(t *testing.T) string {
	t.Helper()
	if !p.lines.Scan() {
		t.Fatalf("the child has ended: %v", p.lines.Err())
	}
	return p.lines.Text()
}

// stopped waits until the child has stopped itself.
func (p *process) stopped(t *testing.T) {
	t.Helper()
	var status unix.WaitStatus
	for {
		_, err := unix.Wait4(p.Process.Pid, &status, unix.WUNTRACED, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || !status.Stopped() {
			t.Fatalf("the child did not stop: %v, status %#x", err, status)
		}
		return
	}
}

func (p *process) resume(t *testing.T) {
	t.Helper()
	if err := p.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// TestKilledAtRandom: workers are killed again and again. What they were told
// is true, no body is torn, nothing unfinished is visible, and what they left
// is cleaned up.
func TestKilledAtRandom(t *testing.T) {
	const rounds, workers = 6, 2
	dir := t.TempDir()
	s := openTest(t, dir, calls{})
	mustPut(t, s, "shared/counter", string(checked(10)), store.IfAbsent())
	acked := map[string]string{} // key to sum; "?" where a delete was under way
	for r := range rounds {
		var procs []*process
		for w := range workers {
			procs = append(procs, start(t, "worker", dir, fmt.Sprintf("%d-%d", r, w)))
		}
		// Not by time: after as many lines as chance will have it.
		for range 5 + rand.IntN(40) {
			note(t, acked, procs[0].line(t))
		}
		for _, p := range procs {
			if err := p.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			for p.lines.Scan() { // what it said before it died
				note(t, acked, p.lines.Text())
			}
			_ = p.Wait()
		}
		s = openTest(t, dir, calls{})
		if left := temps(t, s); len(left) > 0 {
			t.Errorf("Open leaves %q", left)
		}
		listed := map[string]bool{}
		for _, key := range keys(t, s, "") {
			listed[key] = true
			if !strings.HasPrefix(key, "w/") && key != "shared/counter" {
				t.Errorf("%q is visible", key)
			}
			if got := sum([]byte(bodyOf(t, s, key))); got == 0 {
				t.Errorf("%q is torn", key)
			} else if want, ok := acked[key]; ok && want != "?" && want != fmt.Sprintf("%08x", got) {
				t.Errorf("%q has sum %08x, acknowledged was %s", key, got, want)
			}
		}
		for key, want := range acked {
			if want != "?" && listed[key] != (want != "") {
				t.Errorf("%q: listed %v, acknowledged %q", key, listed[key], want)
			}
		}
	}
	t.Logf("%d keys acknowledged over %d kills", len(acked), rounds*workers)
}

func note(t *testing.T, acked map[string]string, line string) {
	t.Helper()
	f := strings.Fields(line)
	switch {
	case len(f) == 3 && f[0] == "+":
		acked[f[1]] = f[2]
	case len(f) == 2 && f[0] == "?":
		acked[f[1]] = "?"
	case len(f) == 2 && f[0] == "-":
		acked[f[1]] = ""
	default:
		t.Fatalf("the child says %q", line)
	}
}

// TestProcessesRace: of several processes that create a key at once, or swap
// one version, exactly one succeeds.
func TestProcessesRace(t *testing.T) {
	const racers, rounds = 4, 40
	dir := t.TempDir()
	s := openTest(t, dir, calls{})
	procs := make([]*process, racers)
	for i := range procs {
		procs[i] = start(t, "racer", dir)
	}
	for _, p := range procs {
		if got := p.line(t); got != "ready" {
			t.Fatalf("the child says %q", got)
		}
	}
	race := func(key, order string, version store.Version) {
		t.Helper()
		for i, p := range procs {
			if _, err := fmt.Fprintf(p.in, "%s %s body-%d %s\n", order, key, i, version); err != nil {
				t.Fatal(err)
			}
		}
		winners, want := 0, ""
		for i, p := range procs {
			switch got := p.line(t); got {
			case "applied":
				winners++
				want = fmt.Sprintf("body-%d", i)
			case "refused":
			default:
				t.Errorf("%s of %s by process %d: %s", order, key, i, got)
			}
		}
		if got := bodyOf(t, s, key); winners != 1 || got != want {
			t.Fatalf("%s of %s: %d winners; it holds %q, the winner's is %q", order, key, winners, got, want)
		}
	}
	for r := range rounds {
		race(fmt.Sprintf("r/%d/k", r), "create", "")
	}
	mustPut(t, s, "swap", "first", store.IfAbsent())
	for range rounds {
		obj, err := s.Get(t.Context(), "swap", nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = obj.Body.Close()
		race("swap", "swap", obj.Version)
	}
}

// TestStoppedLister: a process that is stopped while it lists, even one that
// keeps deletes out, holds up no write but deletes, and those only until it
// goes on.
func TestStoppedLister(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir, calls{})
	info := mustPut(t, s, "n/1", "1", store.IfAbsent())
	p := start(t, "stopper", dir, "readdir", "/n", "list", "n/")
	p.stopped(t)
	// It had not kept deletes out: they go on.
	mustPut(t, s, "n/2", "2", store.IfAbsent())
	if err := s.Delete(t.Context(), "n/2"); err != nil {
		t.Fatalf("Delete beside a stopped lister: %v", err)
	}
	lock := holdListLock(t, s, unix.LOCK_SH) // as a lister does after tries in vain
	mustPut(t, s, "n/1", "swapped", store.IfMatch(info.Version))
	mustPut(t, s, "n/3", "3", store.IfAbsent())
	if got := keys(t, s, "n/"); len(got) != 2 {
		t.Errorf("List: %q", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	tries := 0
	waiting := openTest(t, dir, calls{})
	waiting.calls.before = func(call, path string) error {
		switch {
		case call == "flock" && path == s.at(listLock):
			if tries++; tries == 5 {
				cancel()
			}
		case call == "flock" && tries == 3:
			// Between two tries it holds no lock, or it would hold up swaps.
			swapper, ctx := patient(t, dir, s.at(keyLock("n/3")))
			if _, err := swapper.Put(ctx, "n/3", []byte("swapped"), nil); err != nil {
				t.Errorf("swap beside a delete that waits: %v", err)
			}
		}
		return nil
	}
	if err := waiting.Delete(ctx, "n/3"); err == nil || store.OutcomeOf(err) != store.Unknown || tries < 5 {
		t.Errorf("Delete while listings keep it out: %v after %d tries", err, tries)
	}
	lock.close()
	if err := s.Delete(t.Context(), "n/3"); err != nil {
		t.Errorf("Delete: %v", err)
	}
	p.resume(t)
	if got := p.line(t); got != "applied" {
		t.Errorf("the lister: %s", got)
	}
}

func holdListLock(t *testing.T, s *Store, how int) *lockFile {
	t.Helper()
	f, err := s.makeLock(listLock)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := s.calls.tryLock(f.fd, f.path, how); !ok || err != nil {
		t.Fatalf("the list lock: %v, %v", ok, err)
	}
	return f
}

// TestStoppedDeleter: a process that is stopped within a delete, before or
// after its unlink, does not hold up listings, which see what is there.
func TestStoppedDeleter(t *testing.T) {
	for _, at := range []string{"chtimes", "unlink"} {
		dir := t.TempDir()
		s := openTest(t, dir, calls{})
		mustPut(t, s, "n/1", "1", store.IfAbsent())
		mustPut(t, s, "n/2", "2", store.IfAbsent())
		p := start(t, "stopper", dir, at, "", "delete", "n/1")
		p.stopped(t)
		for i := range 3 {
			mustPut(t, s, fmt.Sprintf("n/new%d", i), "x", store.IfAbsent())
			if got := keys(t, s, "n/"); len(got) != 3+i {
				t.Errorf("List beside a delete stopped at %s: %q", at, got)
			}
		}
		mustPut(t, s, "n/2", "swapped", store.Condition{})
		p.resume(t)
		if got := p.line(t); got != "applied" {
			t.Errorf("the delete: %s", got)
		}
		if got := bodyOf(t, s, "n/1"); got != "-" {
			t.Errorf("after the delete: %q", got)
		}
	}
}

// TestStoppedSwapper: a process that is stopped within a swap holds up the swaps
// of its key and no others. Who waits for it may give up, and then has done
// nothing. When it is killed, all goes on.
func TestStoppedSwapper(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir, calls{})
	other := "other"
	for i := 0; s.at(keyLock(other)) == s.at(keyLock("k")); i++ {
		other = fmt.Sprintf("other%d", i)
	}
	info := mustPut(t, s, "k", "old", store.IfAbsent())
	mustPut(t, s, other, "old", store.IfAbsent())
	p := start(t, "stopper", dir, "rename", "k", "swap", "k", "zombie")
	p.stopped(t)
	mustPut(t, s, other, "new", store.Condition{})
	mustPut(t, s, "created", "new", store.IfAbsent())
	if got := bodyOf(t, s, "k"); got != "old" {
		t.Errorf("Get: %q", got)
	}
	waiting, ctx := patient(t, dir, s.at(keyLock("k")))
	_, err := waiting.Put(ctx, "k", []byte("mine"), &store.PutOptions{If: store.IfMatch(info.Version)})
	if store.OutcomeOf(err) != store.Unknown || ctx.Err() == nil {
		t.Errorf("swap while another is stopped in it: %v", err)
	}
	if left := temps(t, s); len(left) != 1 {
		t.Errorf("temporary files: %q, want the stopped one's only", left)
	}
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()
	mustPut(t, s, "k", "mine", store.IfMatch(info.Version))
	openTest(t, dir, calls{})
	if left := temps(t, s); len(left) != 0 {
		t.Errorf("temporary files of a dead process: %q", left)
	}
}

// TestStoppedUploader: the file of a process that is stopped in an upload is not
// cleaned up; it can go on.
func TestStoppedUploader(t *testing.T) {
	for _, at := range []string{"write", "chtimes", "sync", "link"} {
		dir := t.TempDir()
		s := openTest(t, dir, calls{})
		p := start(t, "stopper", dir, at, "", "upload", "u", "body")
		p.stopped(t)
		for range 3 {
			s = openTest(t, dir, calls{})
		}
		if n := len(temps(t, s)); n != 1 {
			t.Errorf("stopped at %s: %d temporary files, want 1", at, n)
		}
		if got := keys(t, s, ""); len(got) > 0 {
			t.Errorf("stopped at %s: %q is visible", at, got)
		}
		p.resume(t)
		if got := p.line(t); got != "applied" {
			t.Errorf("stopped at %s: the upload: %s", at, got)
		}
		if got := bodyOf(t, s, "u"); got != "body" {
			t.Errorf("stopped at %s: it holds %q", at, got)
		}
		if _, err := os.Stat(filepath.Join(dir, "u")); err != nil {
			t.Error(err)
		}
	}
}
