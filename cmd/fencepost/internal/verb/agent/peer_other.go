//go:build !linux

package agent

import "net"

// uidOf knows nobody here: the directory's mode protects the socket.
func uidOf(net.Conn) (uid int, ok bool) { return 0, false }
