//go:build recipes

package recipes

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// web is the machine behind ssh: it runs the commands that rsh brings.
type web struct {
	mu       sync.Mutex
	statuses []int
}

func (w *web) serve(t *testing.T, p *place) {
	l, err := net.Listen("unix", p.path("sshd"))
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	t.Cleanup(func() { l.Close(); running.Wait() })
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { w.run(t, p, c.(*net.UnixConn)) })
		}
	})
}

func (w *web) run(t *testing.T, p *place, c *net.UnixConn) {
	defer c.Close()
	in := bufio.NewReader(c)
	line, err := in.ReadString('\n')
	if err != nil {
		t.Error(err)
		return
	}
	cmd := exec.Command("sh", "-c", "exec "+line)
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, c, os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Error(err)
		return
	}
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return
	}
	go func() {
		io.Copy(input, in) //nolint:errcheck // the client may be killed
		input.Close()
	}()
	cmd.Wait() //nolint:errcheck // status tells
	w.mu.Lock()
	defer w.mu.Unlock()
	w.statuses = append(w.statuses, cmd.ProcessState.ExitCode())
}

func (w *web) ended() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]int(nil), w.statuses...)
}

// rsh stands for ssh on a machine. After RSH_PAUSE bytes it waits until there is a file go.
func rsh() error {
	conn, err := net.Dial("unix", os.Getenv("RSH"))
	if err != nil {
		return err
	}
	c := conn.(*net.UnixConn)
	if _, err := io.WriteString(c, strings.Join(os.Args[2:], " ")+"\n"); err != nil {
		return err
	}
	go func() {
		if os.Getenv("RSH_PAUSE") != "" {
			io.CopyN(c, os.Stdin, 300_000) //nolint:errcheck // the other side tells
			os.WriteFile("began", nil, 0o644)
			for errors.Is(errOf(os.Stat("go")), os.ErrNotExist) {
				time.Sleep(20 * time.Millisecond)
			}
		}
		io.Copy(c, os.Stdin) //nolint:errcheck
		c.CloseWrite()       //nolint:errcheck
	}()
	_, err = io.Copy(os.Stdout, c)
	return err
}

func errOf(_ os.FileInfo, err error) error { return err }

func TestRsync(t *testing.T) {
	need(t, "rsync")
	p := newPlace(t, uint32(os.Getuid()), "--timeout 60", "--timeout 5", "timeout 600", "timeout 5")
	p.replace = append(p.replace, "/var/lib/site.gate", p.path("web/site.gate"), "web:/srv/site/", "web:"+p.path("web/site")+"/", "/srv/site/ ", "site/ ")
	w := new(web)
	w.serve(t, p)
	var command string
	for _, m := range []string{"a", "b"} {
		command = short(p.script("rsync to another machine", 0, m+"/push.sh"))
		p.write(m+"/site/page", strings.Repeat("page of "+m+"\n", 100_000))
	}
	p.write("web/site/old", "gone with --delete")
	env := []string{"RSYNC_RSH=" + os.Args[0], asRSH + "=1", "RSH=" + p.path("sshd")}
	a := p.start("a", command, append(env, "RSH_PAUSE=yes")...)
	eventually(t, "a sends", func() bool { return a.began(p, "a") })
	thaw := a.freeze()
	eventually(t, "a run of b succeeds", func() bool {
		return p.start("b", strings.Replace(command, "--no-wait", "--wait 1m", 1), env...).status() == 0
	})
	want := p.read("b/site/page")
	if got := p.read("web/site/page"); got != want {
		t.Fatalf("the site is not that of b: %d bytes, %.20q", len(got), got)
	}
	p.write("a/go", "")
	thaw()
	if s := a.status(); s == 0 {
		t.Errorf("a machine that was frozen and replaced says that all went well\n%s", a.out)
	}
	// And a whole transfer, as if nothing had killed it.
	before := len(w.ended())
	late := p.start("a", "./push.sh", append(env, "FENCEPOST_EPOCH=1")...)
	if s := late.status(); s == 0 {
		t.Errorf("a lower epoch writes\n%s", late.out)
	}
	if all := w.ended(); len(all) != before+1 || all[before] != 77 {
		t.Errorf("the gate has ended with %v; want 77 at last", all)
	}
	if got := p.read("web/site/page"); got != want || p.read("web/site/old") != "" {
		t.Error("the site is not that of b any more")
	}
}
