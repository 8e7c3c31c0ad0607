package main

import (
	"context"
	"net"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ext/agent/push"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
)

// cat --follow goes where the leader's lock says, and prints the records also if nobody answers there.
func TestCatFollowAsksTheLeader(t *testing.T) {
	url := newLog(t, fileURL(t))
	st, err := store.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	asked := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_ = c.Close()
		}
		asked <- err
	}()
	c := command(t, "cat", "--follow", url)
	var out buffer
	c.Stdout = &out
	says := push.Announcement{Tail: l.Addr().String(), Cert: "none", Token: "none"}
	err = fencepost.Run(t.Context(), st, &fencepost.Options{Leader: &leader.Options{Announce: says.String()}}, func(ctx context.Context, s *fencepost.Session) error {
		if _, err := s.Append(ctx, [][]byte{[]byte("a")}); err != nil {
			return err
		}
		if err := c.Start(); err != nil {
			return err
		}
		if err := <-asked; err != nil {
			t.Error(err)
		}
		_, err := s.Append(ctx, [][]byte{[]byte("b")})
		return err
	})
	if err != nil {
		t.Error(err)
	}
	eventually(t, "both records are printed", func() bool { return out.String() == "a\nb\n" })
	if err := c.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = c.Wait()
}
