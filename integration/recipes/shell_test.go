//go:build recipes

package recipes

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestFolder(t *testing.T) {
	p := newPlace(t, uint32(os.Getuid()))
	job := "#!/bin/sh -e\nout=${2#file://}\nmkdir -p $out\necho $FENCEPOST_EPOCH >$out/part\ntouch began\nwhile [ ! -e go ]; do sleep 0.05; done\n"
	var command string
	for _, m := range []string{"a", "b"} {
		command = short(p.script("A job that writes a folder", 0, m+"/nightly.sh"))
		p.write(m+"/job", job)
	}
	a := p.start("a", command)
	eventually(t, "the job of a begins", func() bool { return a.began(p, "a") })
	p.start("b", command).ends(75)

	thaw := a.freeze()
	p.write("b/go", "")
	b := p.start("b", strings.Replace(command, "--no-wait", "--wait 1m", 1))
	b.ends(0)
	get := func() string {
		g := p.start("reader", "fencepost gate get file://"+p.path("bucket/nightly")+" latest")
		g.ends(0)
		return strings.TrimSpace(g.out.String())
	}
	want := "file://" + p.path("lake/report/2")
	if got := get(); got != want {
		t.Fatalf("latest is %q, want %q", got, want)
	}
	p.write("a/go", "")
	thaw()
	if s := a.status(); s == 0 {
		t.Errorf("a machine that was frozen and replaced says that all went well\n%s", a.out)
	}
	// The last step of a, as if it had been sent when nothing could kill it.
	p.start("a", "./nightly.sh", "FENCEPOST_EPOCH=1").ends(77)
	if got := get(); got != want {
		t.Errorf("latest is %q, want %q", got, want)
	}
	if got := p.read("lake/report/2/part"); got != "2\n" {
		t.Errorf("the folder of epoch 2 has %q", got)
	}
}

func (r *process) began(p *place, machine string) bool {
	_, err := os.Stat(p.path(machine + "/began"))
	select {
	case <-r.end:
		r.t.Fatalf("%v has ended with status %d\n%s", r.cmd.Args, r.cmd.ProcessState.ExitCode(), r.out)
	default:
	}
	return err == nil
}

func TestRestic(t *testing.T) {
	need(t, "restic")
	for name, harm := range map[string]func(*process) func(){
		"killed": func(r *process) func() { r.signal(syscall.SIGKILL); return func() {} },
		"frozen": (*process).freeze,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, uint32(os.Getuid()))
			p.replace = append(p.replace, "/srv/data", p.path("data"))
			p.write("data/file", "important\n")
			env := []string{"RESTIC_REPOSITORY=" + p.path("repo"), "RESTIC_PASSWORD=secret", "RESTIC_CACHE_DIR=" + p.path("cache")}
			p.start("admin", "restic init", env...).ends(0)
			var command string
			for _, m := range []string{"a", "b"} {
				command = short(p.script("restic", 0, m+"/backup.sh"))
			}
			real := "PATH=${PATH#*:} exec restic"
			// The backup of a holds restic's own lock, and ends when somebody writes to the pipe.
			p.write("a/restic", "#!/bin/sh\nif [ $1 = backup ]; then rm -f pipe; mkfifo pipe; touch began; "+real+" backup --stdin <>pipe; fi\n"+real+` "$@"`+"\n")
			p.write("b/restic", "#!/bin/sh\ntouch began\n"+real+` "$@"`+"\n")
			a := p.start("a", command, env...)
			eventually(t, "the backup of a begins", func() bool {
				locks, _ := os.ReadDir(p.path("repo/locks"))
				return a.began(p, "a") && len(locks) > 0
			})
			all := family(a.cmd.Process.Pid)
			b := p.start("b", command, env...)
			thaw := harm(a)
			eventually(t, "b begins", func() bool { return b.began(p, "b") })
			if name == "killed" { // what is frozen cannot be killed
				if err := alive(all, "restic"); err != nil {
					t.Error(err)
				}
			}
			b.ends(0)
			thaw()
			a.status()
			eventually(t, "all of a is dead", func() bool { return alive(all, "restic") == nil })
			p.start("admin", "restic check --read-data", env...).ends(0)
			snapshots := p.start("admin", "restic snapshots --host shared", env...)
			snapshots.ends(0)
			if !strings.Contains(snapshots.out.String(), "\n1 snapshots") {
				t.Errorf("%s", snapshots.out)
			}
		})
	}
}
