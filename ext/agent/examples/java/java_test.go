//go:build java

package java

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestProducer compiles the example, and kills it five times while it appends.
func TestProducer(t *testing.T) {
	dir := t.TempDir()
	bin, token, log := filepath.Join(dir, "fencepost"), filepath.Join(dir, "token"), "file://"+filepath.Join(dir, "log")
	build := func(in, name string, args ...string) {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = in
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
	}
	build("../../../../cmd/fencepost", "go", "build", "-o", bin, ".")
	build(".", "mvn", "-q", "-B", "-Dout="+dir+"/target", "compile", "dependency:copy-dependencies", "-DoutputDirectory="+dir+"/jars")
	if err := os.WriteFile(token, []byte("a long secret token of this test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	agent := exec.Command(bin, "agent", "--listen", addr, "--token-file", token, log)
	var said bytes.Buffer
	agent.Stderr = &said
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		agent.Process.Signal(os.Interrupt)
		agent.Wait()
		if t.Failed() {
			t.Log(said.String())
		}
	}()

	const last = 200_000
	producer := func() (*exec.Cmd, *bufio.Scanner) {
		cmd := exec.Command("java", "-cp", dir+"/target/classes:"+dir+"/jars/*", "Producer", addr, token, log, fmt.Sprint(last))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err := errors.Join(err, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		return cmd, bufio.NewScanner(out)
	}
	for range 5 {
		cmd, out := producer()
		for out.Scan() && !strings.HasPrefix(out.Text(), "leading") {
		}
		time.Sleep(time.Duration(rand.IntN(500)) * time.Millisecond)
		cmd.Process.Kill()
		cmd.Wait()
	}
	cmd, out := producer()
	end := ""
	for out.Scan() {
		end = out.Text()
	}
	if err := cmd.Wait(); err != nil || end != fmt.Sprintf("the log has %d records", last) {
		t.Fatalf("%v: %s", err, end)
	}
	got, err := exec.Command(bin, "cat", log).Output()
	if err != nil {
		t.Fatal(err)
	}
	want := new(bytes.Buffer)
	for n := 1; n <= last; n++ {
		fmt.Fprintln(want, n)
	}
	if !bytes.Equal(bytes.ReplaceAll(got, []byte("\n"), nil), bytes.ReplaceAll(want.Bytes(), []byte("\n"), nil)) {
		t.Errorf("%d bytes in the log, which are not the numbers up to %d, each once", len(got), last)
	}
}
