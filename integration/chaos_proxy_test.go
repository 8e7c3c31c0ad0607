//go:build integration && unix

package integration

import (
	"net"
	"sync"
	"testing"
	"time"
)

// weather is what a proxy does to the way between one process and the server.
type weather int

const (
	fair    weather = iota
	hole            // nothing passes either way: a partition
	mute            // requests pass, replies do not: each write is applied and its reply lost
	refused         // connections are closed
	slow            // every piece takes a while
	weathers
)

func (w weather) String() string {
	return [...]string{"fair", "partitioned", "replies lost", "connections reset", "slow"}[w]
}

// proxy is one process's way to the server, or the last part of it (see gate): what
// becomes of packets before TCP has repeated and sorted them is not its business. What
// it has held back may be delivered when the weather is fair again, long after its
// sender has given up.
type proxy struct {
	l      net.Listener
	target string

	mu      sync.Mutex
	changed sync.Cond
	now     weather
	pause   time.Duration
	conns   map[net.Conn]bool
	closed  bool
	wg      sync.WaitGroup
}

// newProxy passes on what l accepts, and closes it in the end.
func newProxy(t *testing.T, l net.Listener, target string) *proxy {
	p := &proxy{l: l, target: target, conns: map[net.Conn]bool{}}
	p.changed.L = &p.mu
	p.wg.Go(p.serve)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) addr() string { return p.l.Addr().String() }

// turn changes the weather. Connections that exist are kept, with what they hold
// back, unless drop is set.
func (p *proxy) turn(w weather, pause time.Duration, drop bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now, p.pause = w, pause
	if drop || w == refused {
		for c := range p.conns {
			_ = c.Close()
		}
	}
	p.changed.Broadcast()
}

func (p *proxy) close() {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.closed = true
	for c := range p.conns {
		_ = c.Close()
	}
	p.changed.Broadcast()
	p.mu.Unlock()
	_ = p.l.Close()
	p.wg.Wait()
}

func (p *proxy) serve() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.connect(c) })
	}
}

// keep registers a connection, or closes it if there is no place for it now.
func (p *proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.now == refused {
		_ = c.Close()
		return false
	}
	p.conns[c] = true
	return true
}

func (p *proxy) connect(client net.Conn) {
	if !p.keep(client) {
		return
	}
	server, err := net.Dial("tcp", p.target)
	if err != nil || !p.keep(server) {
		p.end(client)
		return
	}
	p.wg.Go(func() { p.copy(client, server, false) })
	p.copy(server, client, true)
}

func (p *proxy) end(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(p.conns, c)
	}
}

// copy passes on what comes, as the weather allows. One end closed is both.
func (p *proxy) copy(to, from net.Conn, up bool) {
	defer p.end(to, from)
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			p.wait(up)
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// wait holds a piece back for as long as it cannot pass.
func (p *proxy) wait(up bool) {
	p.mu.Lock()
	for !p.closed && (p.now == hole || p.now == mute && !up) {
		p.changed.Wait()
	}
	pause := time.Duration(0)
	if p.now == slow {
		pause = p.pause
	}
	p.mu.Unlock()
	time.Sleep(pause)
}
