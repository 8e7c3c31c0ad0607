//go:build integration && linux

package integration

import (
	"net"
	"sync"
	"testing"
	"time"
)

// weather is what a proxy does to the connections between one process and the server.
type weather int

const (
	fair    weather = iota
	hole            // nothing passes in either direction: a partition
	mute            // requests pass, replies do not: each write is applied and its reply is lost
	refused         // connections are closed
	slow            // every piece is delayed
	weathers
)

func (w weather) String() string {
	return [...]string{"fair", "partitioned", "replies lost", "connections reset", "slow"}[w]
}

// proxy connects one process to the server, or is the last part of that connection (see
// gate). It sees data after TCP has repaired packet loss. Data that it has held back may
// be delivered when the weather is fair again, long after its sender has given up.
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

// newProxy passes on the connections that l accepts. It closes l at the end.
func newProxy(t *testing.T, l net.Listener, target string) *proxy {
	p := &proxy{l: l, target: target, conns: map[net.Conn]bool{}}
	p.changed.L = &p.mu
	p.wg.Go(p.serve)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) addr() string { return p.l.Addr().String() }

// turn changes the weather. Unless drop is set, existing connections stay, with the data
// that they hold back.
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

// keep registers a connection, or closes it if the proxy refuses connections now.
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

// copy passes on data as the weather allows. When one end closes, it closes both.
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
