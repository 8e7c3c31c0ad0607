package agent

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/net/netutil"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
)

// listen is where the agent listens, and who may connect.
type listen struct {
	addr, token         string
	cert, key, clientCA string
	hosts               []string
}

// path is that of a unix socket, or empty.
func (l *listen) path() string {
	path, ok := strings.CutPrefix(l.addr, "unix:")
	switch {
	case ok:
		return strings.TrimPrefix(path, "//")
	case l.addr != "":
		return ""
	}
	base := cmp.Or(os.Getenv("XDG_RUNTIME_DIR"), os.TempDir())
	return filepath.Join(base, "fencepost-"+strconv.Itoa(os.Getuid()), "agent.sock")
}

// check refuses what would let others in.
//
// guard:agent-tcp. On TCP the agent asks for a token or a certificate, and never takes a token unencrypted from another machine.
//
//mutant:replace l.token == "" && l.clientCA == "" => false
func (l *listen) check(urls []string) error {
	if l.path() != "" {
		if len(l.hosts) > 0 || l.cert != "" {
			return kit.Usage("--host and --tls-cert are for TCP; a unix socket is for this machine and user only")
		}
		return nil
	}
	host, _, err := net.SplitHostPort(l.addr)
	if err != nil {
		return kit.Usage("--listen is %q; write unix:PATH, or an address of this machine such as 127.0.0.1:7400", l.addr)
	}
	ip := net.ParseIP(host)
	switch loopback := host == "localhost" || ip != nil && ip.IsLoopback(); {
	case l.token == "" && l.clientCA == "":
		return kit.Usage("on TCP anybody could append to the log: give --token-file FILE, or --tls-client-ca FILE with --tls-cert and --tls-key; or listen on unix:PATH")
	case (l.cert == "") != (l.key == ""):
		return kit.Usage("--tls-cert and --tls-key go together")
	case !loopback && l.cert == "":
		return kit.Usage("the token would cross the network in the clear: give --tls-cert and --tls-key, or listen on 127.0.0.1")
	case len(urls) == 0:
		return kit.Usage("on TCP clients may only name logs that the agent was started with: give their URLs")
	case (host == "" || ip != nil && ip.IsUnspecified()) && len(l.hosts) == 0:
		return kit.Usage("say with --host NAME under which name clients reach it, since --listen %s has none", l.addr)
	}
	return nil
}

// names are the values of Host that are served.
func (l *listen) names() []string {
	if l.path() != "" {
		return nil
	}
	host, _, _ := net.SplitHostPort(l.addr)
	names := l.hosts
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
		names = append(names, host)
		if host == "localhost" || ip != nil && ip.IsLoopback() {
			names = append(names, "localhost")
		}
	}
	return names
}

// bearer returns a function that reads the token, which may be replaced at any time; nil if there is none.
func (l *listen) bearer() func() (string, error) {
	if l.token == "" {
		return nil
	}
	return func() (string, error) {
		b, err := os.ReadFile(l.token)
		return strings.TrimSpace(string(b)), err
	}
}

// open listens, and says where.
func (l *listen) open(ctx context.Context) (net.Listener, string, error) {
	if path := l.path(); path != "" {
		n, err := socket(ctx, path)
		return n, "unix:" + path, err
	}
	if l.token != "" {
		if token, err := l.bearer()(); err != nil || token == "" {
			return nil, "", errors.Join(fmt.Errorf("the token file %s is empty or cannot be read", l.token), err)
		}
	}
	n, err := new(net.ListenConfig).Listen(ctx, "tcp", l.addr)
	if err != nil {
		return nil, "", kit.Usage("--listen %s: %v; write an address of this machine, such as 127.0.0.1:7400", l.addr, err)
	}
	// Below TLS: the server must see that, or it speaks no HTTP/2. A unix socket has no limit, which would hide who is there.
	n = netutil.LimitListener(n, kit.MaxConnections)
	if l.cert == "" {
		return n, "http://" + n.Addr().String(), nil
	}
	if _, err := l.secure(nil); err != nil {
		_ = n.Close()
		return nil, "", err
	}
	return tls.NewListener(n, &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: l.secure}), "https://" + n.Addr().String(), nil
}

// secure reads the certificates, which may be replaced at any time.
func (l *listen) secure(*tls.ClientHelloInfo) (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(l.cert, l.key)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}}
	if l.clientCA == "" {
		return c, nil
	}
	pem, err := os.ReadFile(l.clientCA)
	if err != nil {
		return nil, err
	}
	c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !c.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate in PEM", l.clientCA)
	}
	return c, nil
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
