//go:build integration

package integration

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/internal/test/servers"
)

// converse is a node that only tests the network. With role echo it sends back all data.
// With role leave it waits for a line, sends a last word and ends before that has
// arrived.
func converse(role, addr string) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	if role == "echo" {
		_, err := io.Copy(c, c)
		return errors.Join(err, c.Close())
	}
	fmt.Println("connected")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	_, err = io.WriteString(c, "last word")
	return errors.Join(err, c.Close())
}

// network returns a gate for one test. The test is skipped where gates are not possible.
func network(t *testing.T) *gate {
	g, err := openGate()
	if err != nil {
		t.Skip("no packets to lose: network namespaces are not available here: ", err)
	}
	t.Cleanup(g.close)
	return g
}

// visitor is one process at the end of a link.
type visitor struct {
	*link
	stdin  io.Writer
	stdout io.Reader
	stderr *bytes.Buffer
	ended  <-chan struct{}
	net.Conn
}

// visit starts a process at the end of a perfect link, and waits until it has connected.
func visit(t *testing.T, g *gate, number int, role string) *visitor {
	t.Helper()
	cmd := exec.Command(os.Args[0], g.l.Addr().String())
	cmd.Env = append(os.Environ(), nodeRole+"="+role)
	v := &visitor{stderr: &bytes.Buffer{}}
	cmd.Stderr = v.stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	v.stdin = in
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	cmd.Stdout, v.stdout = w, r
	link := g.join(number, 7)
	v.link = link
	t.Cleanup(func() { link.finish() })
	settle, err := link.house(cmd)
	if err != nil {
		t.Fatal(err)
	}
	v.ended, err = servers.Spawn(cmd)
	settle()
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-v.ended
		if t.Failed() {
			t.Log(v.stderr)
		}
	})
	came := make(chan bool)
	go func() {
		select {
		case <-came:
		case <-v.ended:
			_ = link.Close()
		}
	}()
	if v.Conn, err = link.Accept(); err != nil {
		t.Fatal("the process ended before it connected: ", err)
	}
	close(came)
	t.Cleanup(func() { _ = v.Conn.Close() })
	return v
}

// TestPackets sends a stream in both directions while packets are lost, duplicated and
// reordered. TCP retransmits, and the stream arrives.
func TestPackets(t *testing.T) {
	g := network(t)
	v := visit(t, g, 1, "echo")
	rough := air{lost: 0.05, doubled: 0.05, late: 0.2, delay: time.Millisecond, jitter: 20 * time.Millisecond}
	v.turn(rough, rough)
	data := make([]byte, 64<<10)
	r := rand.NewChaCha8([32]byte{})
	for {
		_, _ = r.Read(data)
		go func() { _, _ = v.Conn.Write(data) }()
		back := make([]byte, len(data))
		if _, err := io.ReadFull(v.Conn, back); err != nil || !bytes.Equal(back, data) {
			t.Fatalf("the echo is not what was sent: %v", err)
		}
		raw, err := v.Conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var info *unix.TCPInfo
		if cerr := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }); cerr != nil || err != nil {
			t.Fatal(cerr, err)
		}
		count := v.down.sofar()
		if info.Total_retrans > 0 && count.Lost > 0 && count.Doubled > 0 && count.Reordered > 0 {
			t.Logf("%+v to the node, %d segments repeated", count, info.Total_retrans)
			return
		}
	}
}

// TestRequestOfTheDead: data that a process has sent arrives when the network is whole
// again, though the process has ended long before.
func TestRequestOfTheDead(t *testing.T) {
	g := network(t)
	v := visit(t, g, 1, "leave")
	if line, err := bufio.NewReader(v.stdout).ReadString('\n'); line != "connected\n" {
		t.Fatal(line, err)
	}
	v.turn(air{lost: 1}, air{lost: 1})
	if _, err := io.WriteString(v.stdin, "leave\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-v.ended:
	case <-t.Context().Done():
	}
	v.turn(air{}, air{})
	got, err := io.ReadAll(v.Conn)
	if string(got) != "last word" {
		t.Fatalf("got %q, %v", got, err)
	}
}
