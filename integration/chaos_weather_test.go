//go:build integration && linux

package integration

import (
	"errors"
	"math/rand/v2"
	"net"
	"os/exec"
	"testing"
	"time"
)

// way is the connection between one process and the server: a proxy and, where namespaces
// are allowed, a link on which packets are lost.
type way struct {
	*proxy
	link  *link // nil: only the proxy
	usual air   // of the link in fair weather
}

// newWay makes a way to the target. number distinguishes the ways of a town.
func newWay(t *testing.T, g *gate, number int, rng *rand.Rand, target string) (*way, error) {
	if g == nil {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		return &way{proxy: newProxy(t, l, target)}, nil
	}
	l := g.join(number, rng.Uint64())
	w := &way{proxy: newProxy(t, l, target), link: l}
	if rng.IntN(3) == 0 { // a poor network all the time
		w.usual = air{lost: 0.01, doubled: 0.01, late: 0.05, delay: time.Millisecond, jitter: 20 * time.Millisecond}
	}
	w.clear(false)
	return w, nil
}

// lead makes a command start at the beginning of the way. The command's environment must
// be complete. Call settle after the command was started, or could not be.
func (w *way) lead(cmd *exec.Cmd) (settle func(), err error) {
	if w == nil || w.link == nil {
		return func() {}, nil
	}
	return w.link.house(cmd)
}

// clear makes the weather fair.
func (w *way) clear(drop bool) {
	w.turn(fair, 0, drop)
	if w.link != nil {
		w.link.turn(w.usual, w.usual)
	}
}

// worsen makes the weather bad in some random way, and returns its name.
func (w *way) worsen(rng *rand.Rand) string {
	if w.link == nil || rng.IntN(3) == 0 {
		kind := weather(1 + rng.IntN(int(weathers)-1))
		w.turn(kind, time.Duration(100+rng.IntN(900))*time.Millisecond, false)
		return kind.String()
	}
	some := func(least, most float64) float64 { return least + rng.Float64()*(most-least) }
	ms := func(most int) time.Duration { return time.Duration(1+rng.IntN(most)) * time.Millisecond }
	all, both := air{lost: 1}, func(a air) (air, air) { return a, a }
	var up, down air
	var name string
	switch rng.IntN(7) {
	case 0:
		name = "packets lost"
		up, down = air{lost: some(0, 0.4)}, air{lost: some(0, 0.4)}
	case 1:
		name = "packets reordered"
		up, down = both(air{late: some(0.1, 0.6), jitter: ms(300)})
	case 2:
		name = "packets duplicated"
		up, down = both(air{doubled: some(0.2, 1), late: some(0, 0.5), jitter: ms(300)})
	case 3:
		name = "packets delayed"
		up, down = both(air{delay: ms(400), late: some(0, 0.5), jitter: ms(100)})
	case 4:
		name = "narrow way"
		up, down = both(air{rate: 2000 + rng.IntN(50_000)})
	case 5:
		name = "no packets either way"
		up, down = both(all)
	case 6:
		if rng.IntN(2) == 0 {
			name, up = "no packets to the server", all
		} else {
			name, down = "no packets from the server", all
		}
	}
	w.link.turn(up, down)
	return name
}

// end closes the way and returns the counts of its packets.
func (w *way) end() packets {
	w.close()
	if w.link == nil {
		return packets{}
	}
	return w.link.finish()
}

// sofar returns the counts while the way is open.
func (w *way) sofar() packets {
	if w.link == nil {
		return packets{}
	}
	return w.link.sofar()
}

// openNetwork makes the network of a town's processes, or says why there is none.
func openNetwork(t *testing.T) (g *gate, what string) {
	err := errors.New("-chaos-packets=false")
	if *chaosPackets {
		if g, err = openGate(); err == nil {
			t.Cleanup(g.close)
			return g, "packets"
		}
	}
	return nil, "TCP proxies only, packets are neither lost nor reordered: " + err.Error()
}
