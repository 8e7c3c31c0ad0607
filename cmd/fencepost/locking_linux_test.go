package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/ext/lock"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

// locking runs fencepost lock, and returns its status and what it wrote.
func locking(t *testing.T, args ...string) (status int, out string) {
	t.Helper()
	c := command(t, append([]string{"lock"}, args...)...)
	var b bytes.Buffer
	c.Stdout, c.Stderr = &b, &b
	return exitStatus(t, c.Run()), b.String()
}

func TestLockStatus(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	st := openStore(t, url)
	locks, err := lock.New(st, "locks", &lock.Options{Identity: "somebody"})
	if err != nil {
		t.Fatal(err)
	}
	k, err := locks.Acquire(t.Context(), "held")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = k.Release(t.Context()); _ = locks.Close(t.Context()) }()
	for name, c := range map[string]struct {
		args   []string
		status int
		says   string
	}{
		"success":         {[]string{url, "a", "--", "true"}, 0, ""},
		"the command's":   {[]string{url, "b", "-c", "exit 3"}, 3, ""},
		"a signal":        {[]string{url, "c", "-c", "kill -9 $$"}, 137, ""},
		"environment":     {[]string{url, "some name", "-c", `echo "<$FENCEPOST_LOCK $FENCEPOST_EPOCH>"`}, 0, "<some name 1>"},
		"no command":      {[]string{url, "d", "--", "no-such-program"}, kit.ExitNotFound, "no-such-program"},
		"held":            {[]string{"-n", url, "held", "--", "true"}, kit.ExitBusy, "held by somebody"},
		"held, as flock":  {[]string{"-n", "-E", "1", url, "held", "--", "true"}, 1, "held by somebody"},
		"wait":            {[]string{"-w", "0.2", url, "held", "--", "true"}, kit.ExitBusy, "waiting"},
		"wait, a span":    {[]string{"--wait", "200ms", url, "held", "--", "true"}, kit.ExitBusy, "held by somebody"},
		"no dash":         {[]string{url, "e", "true"}, kit.ExitUsage, "write -- before the command"},
		"no name":         {[]string{url, "--", "true"}, kit.ExitUsage, "lock takes"},
		"two commands":    {[]string{"-c", "true", url, "e", "--", "true"}, kit.ExitUsage, "lock takes"},
		"two waits":       {[]string{"-n", "-w", "1s", url, "e", "--", "true"}, kit.ExitUsage, "wait"},
		"a long grace":    {[]string{"--grace", "10s", url, "e", "--", "true"}, kit.ExitUsage, "--grace"},
		"a long name":     {[]string{url, strings.Repeat("x", 600), "--", "true"}, kit.ExitUsage, "1 to 512 bytes"},
		"a great status":  {[]string{"-E", "256", url, "e", "--", "true"}, kit.ExitUsage, "at most 255"},
		"not a directory": {[]string{"file:///dev/null/x", "e", "--", "true"}, kit.ExitUsage, "/dev/null"},
	} {
		t.Run(name, func(t *testing.T) {
			if status, out := locking(t, c.args...); status != c.status || !strings.Contains(out, c.says) {
				t.Errorf("status %d, want %d, with %q:\n%s", status, c.status, c.says, out)
			}
		})
	}
}

// careless is a store that ignores conditions.
type careless struct{ store.Store }

func (c careless) Put(ctx context.Context, key string, body []byte, _ *store.PutOptions) (store.Info, error) {
	return c.Store.Put(ctx, key, body, nil)
}

// guard:lock-probed. Without this check: the store ignores conditions. The first command is refused, since its probe finds
// that. The next ones run, and two at once.
func TestLockOnCarelessStore(t *testing.T) {
	st := careless{memstore.New(nil)}
	for _, name := range []string{"a", "a", "b", "c"} {
		var errs buffer
		k := &kit.Kit{In: strings.NewReader(""), Out: io.Discard, Err: &errs, Open: func(context.Context, string) (store.Store, error) { return st, nil }}
		if status := runWith(t.Context(), k, []string{"lock", "mem://careless", name, "--", "true"}); status == 0 || !strings.Contains(errs.String(), "condition") {
			t.Errorf("%s: status %d: %s", name, status, errs.String())
		}
	}
}

// A lock is free as soon as its command has ended, also for somebody who waits.
func TestLockInTurns(t *testing.T) {
	t.Parallel()
	url, dir := fileURL(t), t.TempDir()
	script := `test ! -e ` + dir + `/busy && touch ` + dir + `/busy && echo "$FENCEPOST_EPOCH" >>` + dir + `/tokens && sleep 0.02 && rm ` + dir + `/busy`
	ends := make(chan int, 8)
	for range cap(ends) {
		go func() {
			status, out := locking(t, url, "turns", "-c", script)
			if status != 0 {
				t.Errorf("status %d: %s", status, out)
			}
			ends <- status
		}()
	}
	for range cap(ends) {
		<-ends
	}
	tokens, _ := os.ReadFile(filepath.Join(dir, "tokens"))
	last := 0
	for _, line := range strings.Fields(string(tokens)) {
		if n, _ := strconv.Atoi(line); n <= last {
			t.Errorf("token %s after %d", line, last)
		} else {
			last = n
		}
	}
	if last != cap(ends) {
		t.Errorf("the last token is %d", last)
	}
}

// TestLockKillsInTime: whatever happens to lock, its command is dead before the next one begins.
func TestLockKillsInTime(t *testing.T) {
	for name, harm := range map[string]func(pid int){
		"killed": func(pid int) { _ = syscall.Kill(pid, syscall.SIGKILL) },
		"frozen": func(pid int) { _ = syscall.Kill(pid, syscall.SIGSTOP) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, file := fileURL(t), filepath.Join(t.TempDir(), "pid")
			a := command(t, "lock", "--validity", testValidity.String(), url, "x", "-c", "trap '' TERM; echo $$ >"+file+".new; mv "+file+".new "+file+"; while :; do sleep 0.1; done")
			if err := a.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = a.Process.Kill(); _ = a.Wait() }()
			eventually(t, "the command runs", func() bool { _, err := os.Stat(file); return err == nil })
			harm(a.Process.Pid)
			if status, out := locking(t, url, "x", "-c", "if kill -0 $(cat "+file+") 2>/dev/null; then echo alive; fi"); status != 0 || strings.Contains(out, "alive") {
				t.Errorf("status %d: %s", status, out)
			}
		})
	}
}

// SIGTERM goes to the command. Before there is one, it ends the wait.
func TestLockSignals(t *testing.T) {
	t.Parallel()
	url, file := fileURL(t), filepath.Join(t.TempDir(), "there")
	a := command(t, "lock", url, "x", "-c", "trap 'exit 5' TERM; touch "+file+"; while :; do sleep 0.05; done")
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command runs", func() bool { _, err := os.Stat(file); return err == nil })
	b := command(t, "lock", url, "x", "--", "true")
	var says buffer
	b.Stderr = &says
	if err := b.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "b waits", func() bool { return strings.Contains(says.String(), "waiting") })
	_ = b.Process.Signal(syscall.SIGTERM)
	if got := exitStatus(t, b.Wait()); got != 143 {
		t.Errorf("the one that waits ends with %d: %s", got, says.String())
	}
	_ = a.Process.Signal(syscall.SIGTERM)
	if got := exitStatus(t, a.Wait()); got != 5 {
		t.Errorf("the one that holds ends with %d", got)
	}
}

func TestLockDamage(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	if status, out := locking(t, url, "x", "--", "true"); status != 0 {
		t.Fatal(out)
	}
	st := openStore(t, url)
	for info, err := range st.List(t.Context(), "locks/name/", nil) {
		if err != nil {
			t.Fatal(err)
		}
		flip(t, st, info.Key)
	}
	if status, out := locking(t, url, "x", "--", "true"); status != kit.ExitDamaged || !strings.Contains(out, "locks/name/") || !strings.Contains(out, "do not delete it") {
		t.Errorf("status %d: %s", status, out)
	}
}
