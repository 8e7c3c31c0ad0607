package agent

import (
	"net"
	"sync/atomic"
	"testing"
)

// TestReadersAreBounded: whoever reaches the port of the readers cannot take all files that the process may open, without which it
// reaches no store and loses its logs.
func TestReadersAreBounded(t *testing.T) {
	r := readers{at: "127.0.0.1:0", most: 2}
	if _, err := r.listen(t.Context(), &listen{}); err != nil {
		t.Fatal(err)
	}
	defer r.l.Close()
	var open []net.Conn
	var left atomic.Bool
	third := make(chan bool)
	for i := range 3 {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", r.l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i < 2 {
			n, err := r.l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer n.Close()
			open = append(open, n)
			continue
		}
		begun := make(chan struct{})
		go func() {
			close(begun)
			n, err := r.l.Accept()
			if err == nil {
				defer n.Close()
			}
			third <- left.Load()
		}()
		<-begun
	}
	select {
	case <-third:
		t.Fatal("the third one is served while two are")
	default:
	}
	left.Store(true)
	_ = open[0].Close()
	if !<-third {
		t.Error("the third one is served while two are")
	}
}
