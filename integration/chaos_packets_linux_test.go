//go:build integration

package integration

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A node at the end of a link lives in its own network namespace. The gate has another
// one, and is all that the node can reach. Each end is a TUN device. This process holds
// both devices and carries the packets between them. It loses, duplicates and reorders
// packets below TCP, so the kernel at both ends has to cope. The gate's listening socket
// is in this process too, which passes on what it accepts (see proxy). Namespaces and
// devices end with their descriptors, so nothing remains when this process ends.

const (
	linkAddr = "FENCEPOST_CHAOS_ADDR" // environment variable: the node's own address
	linkFD   = 3                      // the socket over which the node sends its device
)

var (
	gateAddr = netip.MustParseAddr("10.77.0.1")
	gatePort = uint16(9000)
)

// apart makes a command start in its own user namespace, and in these namespaces.
func apart(cmd *exec.Cmd, namespaces uintptr) {
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | namespaces,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
}

// tun makes a network device. Its packets are read from and written to the descriptor.
// This needs ioctls, which a library would not make shorter.
func tun(addr netip.Addr) (fd int, err error) {
	fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("/dev/net/tun: %w", err)
	}
	sock, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	r, err := unix.NewIfreq("fencepost")
	set := func(fd int, request uint) {
		if err == nil {
			err = unix.IoctlIfreq(fd, request, r)
		}
	}
	address := func(a []byte) {
		if err == nil {
			err = r.SetInet4Addr(a)
		}
	}
	r.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	set(fd, unix.TUNSETIFF)
	address(addr.AsSlice())
	set(sock, unix.SIOCSIFADDR)
	address([]byte{255, 255, 0, 0})
	set(sock, unix.SIOCSIFNETMASK)
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	set(sock, unix.SIOCSIFFLAGS)
	if err := errors.Join(err, unix.Close(sock)); err != nil {
		return 0, errors.Join(fmt.Errorf("network device: %w", err), unix.Close(fd))
	}
	// A dead process's data is retransmitted for some seconds instead of two minutes,
	// because it keeps its namespace alive that long. (Without the right to write here,
	// it takes two minutes.)
	_ = os.WriteFile("/proc/sys/net/ipv4/tcp_orphan_retries", []byte("4"), 0)
	return fd, nil
}

// receiveFiles waits for n descriptors.
func receiveFiles(c *net.UnixConn, n int) ([]*os.File, error) {
	oob := make([]byte, unix.CmsgSpace(4*n))
	_, got, _, _, err := c.ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:got])
	if err != nil || len(messages) != 1 {
		return nil, errors.Join(err, io.ErrUnexpectedEOF)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for _, fd := range fds {
		unix.CloseOnExec(fd)
		if err := unix.SetNonblock(fd, true); err != nil {
			return nil, err
		}
		files = append(files, os.NewFile(uintptr(fd), "received"))
	}
	return files, nil
}

// socketPair returns a connection that receives files, and the end for a child process.
func socketPair() (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	mine := os.NewFile(uintptr(fds[0]), "ours")
	theirs = os.NewFile(uintptr(fds[1]), "theirs")
	c, err := net.FileConn(mine)
	if err := errors.Join(err, mine.Close()); err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return c.(*net.UnixConn), theirs, nil
}

// joinNetwork is the first thing that a node does: it makes its end of the link and sends
// the device to the test.
func joinNetwork() error {
	text := os.Getenv(linkAddr)
	if text == "" {
		return nil
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return err
	}
	device, err := tun(addr)
	if err != nil {
		return err
	}
	err = sendFiles(device)
	return errors.Join(err, unix.Close(device), unix.Close(linkFD))
}

func sendFiles(fds ...int) error {
	return unix.Sendmsg(linkFD, []byte{0}, unix.UnixRights(fds...), nil, 0)
}

// makeGate is all that the gate's process does.
func makeGate() error {
	device, err := tun(gateAddr)
	if err != nil {
		return err
	}
	l, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.AddrPortFrom(gateAddr, gatePort)))
	if err != nil {
		return err
	}
	socket, err := l.File()
	if err != nil {
		return err
	}
	return sendFiles(device, int(socket.Fd()))
}

// gate is the server's end of all links of a town.
type gate struct {
	device *os.File
	l      net.Listener
	wg     sync.WaitGroup

	mu    sync.Mutex
	links map[netip.Addr]*link
}

// link connects one node to the gate. The node's proxy listens on it.
type link struct {
	gate     *gate
	addr     netip.Addr
	up, down *lane
	conns    chan net.Conn
	ended    chan struct{}
	end      sync.Once
	wg       sync.WaitGroup

	mu     sync.Mutex
	device *os.File // nil until the node has sent it
}

// openGate makes a network, if this process may.
func openGate() (*gate, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), nodeRole+"=gate")
	cmd.ExtraFiles = []*os.File{theirs} // linkFD
	apart(cmd, unix.CLONE_NEWNET)
	out, err := cmd.CombinedOutput() // it ends by itself
	if err := errors.Join(err, theirs.Close()); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	files, err := receiveFiles(ours, 2)
	if err != nil {
		return nil, err
	}
	l, err := net.FileListener(files[1])
	if err := errors.Join(err, files[1].Close()); err != nil {
		return nil, errors.Join(err, files[0].Close())
	}
	g := &gate{device: files[0], l: l, links: map[netip.Addr]*link{}}
	g.wg.Go(g.deliver)
	g.wg.Go(g.accept)
	return g, nil
}

func (g *gate) close() {
	_ = g.l.Close()
	_ = g.device.Close()
	g.wg.Wait()
}

func (g *gate) link(addr netip.Addr) *link {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.links[addr]
}

// deliver carries packets from the gate to the nodes.
func (g *gate) deliver() {
	forEachPacket(g.device, func(packet []byte) {
		if l := g.link(netip.AddrFrom4([4]byte(packet[16:20]))); l != nil {
			l.down.carry(packet)
		}
	})
}

// forEachPacket reads IPv4 packets until the file is closed. It ignores the other packets
// that the kernel sends when a device comes up.
func forEachPacket(f *os.File, carry func([]byte)) {
	buf := make([]byte, 64<<10)
	for {
		n, err := f.Read(buf)
		if err != nil {
			return
		}
		if n >= 20 && buf[0]>>4 == 4 {
			carry(append([]byte(nil), buf[:n]...))
		}
	}
}

func (g *gate) accept() {
	for {
		c, err := g.l.Accept()
		if err != nil {
			return
		}
		from := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr()
		l := g.link(from)
		if l == nil {
			_ = c.Close()
			continue
		}
		select {
		case l.conns <- c:
		case <-l.ended:
			_ = c.Close()
		}
	}
}

// join makes a new link; number makes its address.
func (g *gate) join(number int, seed uint64) *link {
	number += int(gateAddr.As4()[3])
	addr := netip.AddrFrom4([4]byte{10, 77, byte(number >> 8), byte(number)})
	l := &link{gate: g, addr: addr, conns: make(chan net.Conn), ended: make(chan struct{})}
	l.up = newLane(seed, 1, func(p []byte) { _, _ = g.device.Write(p) }) // lost if the device is full
	l.down = newLane(seed, 2, l.write)
	g.mu.Lock()
	g.links[addr] = l
	g.mu.Unlock()
	return l
}

// house makes a command start at the end of the link. The command's environment must be
// complete. Call settle after the command was started, or could not be.
func (l *link) house(cmd *exec.Cmd) (settle func(), err error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	cmd.ExtraFiles = []*os.File{theirs} // linkFD
	cmd.Env = append(cmd.Env, linkAddr+"="+l.addr.String())
	apart(cmd, unix.CLONE_NEWNET)
	l.wg.Go(func() {
		defer ours.Close()
		files, err := receiveFiles(ours, 1)
		if err != nil {
			return // the node died early
		}
		l.mu.Lock()
		l.device = files[0]
		l.mu.Unlock()
		l.wg.Go(func() {
			<-l.ended
			_ = files[0].Close()
		})
		forEachPacket(files[0], l.up.carry)
	})
	return func() { _ = theirs.Close() }, nil
}

func (l *link) write(packet []byte) {
	l.mu.Lock()
	device := l.device
	l.mu.Unlock()
	if device != nil {
		_, _ = device.Write(packet) // lost if the device is full or gone
	}
}

func (l *link) turn(up, down air) {
	l.up.turn(up)
	l.down.turn(down)
}

// Accept, Addr and Close make a link a net.Listener.
func (l *link) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

func (l *link) Addr() net.Addr { return l.gate.l.Addr() }

func (l *link) Close() error {
	l.end.Do(func() {
		l.gate.mu.Lock()
		delete(l.gate.links, l.addr)
		l.gate.mu.Unlock()
		close(l.ended)
	})
	return nil
}

// sofar counts what happened to the link's packets so far.
func (l *link) sofar() packets {
	count := l.up.sofar()
	count.add(l.down.sofar())
	return count
}

// finish waits until nothing of the link remains, and returns the final counts.
func (l *link) finish() packets {
	_ = l.Close()
	l.wg.Wait()
	count := l.up.close()
	count.add(l.down.close())
	return count
}
