package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
)

// listen is where the agent listens, and who may connect.
type listen struct{ kit.TCP }

// path is that of a unix socket, or empty.
func (l *listen) path() string {
	path, ok := strings.CutPrefix(l.Addr, "unix:")
	switch {
	case ok:
		return strings.TrimPrefix(path, "//")
	case l.Addr != "":
		return ""
	}
	base := cmp.Or(os.Getenv("XDG_RUNTIME_DIR"), os.TempDir())
	return filepath.Join(base, "fencepost-"+strconv.Itoa(os.Getuid()), "agent.sock")
}

// check refuses what would let others in.
func (l *listen) check(urls []string) error {
	if l.path() != "" {
		if len(l.Hosts) > 0 || l.Cert != "" {
			return kit.Usage("--host and --tls-cert are for TCP; a unix socket is for this machine and user only")
		}
		return nil
	}
	if err := l.Check("unix:PATH, or ", "append to the log", "; or listen on unix:PATH"); err != nil {
		return err
	}
	if len(urls) == 0 {
		return kit.Usage("on TCP clients may only name logs that the agent was started with: give their URLs")
	}
	return nil
}

// names are the values of Host that are served.
func (l *listen) names() []string {
	if l.path() != "" {
		return nil
	}
	return l.Names()
}

// open listens, and says where.
func (l *listen) open(ctx context.Context) (net.Listener, string, error) {
	if path := l.path(); path != "" { // a limit would hide who is at the other end
		n, err := socket(ctx, path)
		return n, "unix:" + path, err
	}
	return l.Listen(ctx)
}

// socket listens on a unix socket that only this user can open.
func socket(ctx context.Context, path string) (net.Listener, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := private(dir); err != nil {
		return nil, err
	}
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket:
		return nil, kit.Usage("--listen unix:%s: there is something else than a socket", path)
	default:
		if c, err := new(net.Dialer).DialContext(ctx, "unix", path); err == nil {
			_ = c.Close()
			return nil, kit.Usage("another agent listens at unix:%s already: use that one, or another path", path)
		}
		if err := os.Remove(path); err != nil { // of an agent that was killed
			return nil, err
		}
	}
	return new(net.ListenConfig).Listen(ctx, "unix", path)
}

// private refuses a directory that another user may enter.
//
// guard:agent-socket. The directory of the socket belongs to this user, and nobody else may enter it.
//
//mutant:replace info.Mode().Perm()&0o077 != 0 => false
func private(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return kit.Usage("the directory of the socket, %s, is a link, which its owner may turn elsewhere: name the directory itself", dir)
	}
	if info.Mode().Perm()&0o077 != 0 || !kit.Mine(info) {
		return kit.Usage("other users may enter the directory of the socket, %s: make it one of this user with mode 0700 (chmod 700), or name one that is not there yet", dir)
	}
	return nil
}

// own serves only this user at a unix socket, and root.
//
// guard:agent-peer. Where the user at the other end of a unix socket is known, another user's request is refused.
//
//mutant:replace uid != os.Getuid() && uid != 0 => false
func own(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if uid, ok := r.Context().Value(peerUID{}).(int); ok && uid != os.Getuid() && uid != 0 {
			http.Error(w, fmt.Sprintf("agent: it serves uid %d only, and this is uid %d; start an agent of your own", os.Getuid(), uid), http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
