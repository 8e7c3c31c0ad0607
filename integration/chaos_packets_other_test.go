//go:build integration && unix && !linux

package integration

import (
	"errors"
	"net"
	"os/exec"
	"testing"
)

// Packet networks need Linux.

type gate struct{}

type link struct{ net.Listener }

var errNoNetwork = errors.New("network namespaces need Linux")

func openGate() (*gate, error) { return nil, errNoNetwork }

func (*gate) close() {}

func (*gate) join(int, uint64) *link { return nil }

func (*link) house(*exec.Cmd) (func(), error) { return nil, errNoNetwork }

func (*link) turn(up, down air) {}

func (*link) sofar() packets { return packets{} }

func (*link) finish() packets { return packets{} }

func makeGate() error { return errNoNetwork }

func joinNetwork() error { return nil }

// So do disks that can be filled.

type disk struct{}

func withDisks(*testing.T, []string, func(*testing.T, func() *disk)) error {
	return errors.New("no disk to fill: mount namespaces need Linux")
}

func (*disk) fill(string, uint64) error { return nil }

func (*disk) free() error { return nil }

func (*disk) url(string) string { return "" }

func tryDisk(string) error { return errors.New("mount namespaces need Linux") }

func converse(role, addr string) error { return errNoNetwork }
