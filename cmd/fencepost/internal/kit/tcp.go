package kit

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/net/netutil"
)

// TCP is where a verb listens on TCP, and whom it lets in.
type TCP struct {
	Addr, Token         string
	Cert, Key, ClientCA string
	Hosts               []string
}

// Flags adds the flags of all but the address.
func (t *TCP) Flags(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&t.Token, "token-file", "", "`FILE` with the bearer token that each request must have")
	fl.StringVar(&t.Cert, "tls-cert", "", "`FILE` with the certificate of this server, in PEM")
	fl.StringVar(&t.Key, "tls-key", "", "`FILE` with its key")
	fl.StringVar(&t.ClientCA, "tls-client-ca", "", "`FILE` with the authorities of clients' certificates")
	fl.StringArrayVar(&t.Hosts, "host", nil, "a `NAME` under which clients reach it on TCP")
	Needs(c, "tls-cert", "tls-key", "tls-client-ca")
}

// Check refuses what would let others in. Others is where else the verb can listen, as in "unix:PATH, or ", and instead what else
// helps. Harm is what anybody could do; "" if those on this machine may.
//
// guard:listen-tcp. On TCP a token or a certificate is asked for, at least from other machines, and no token is taken from them
// unencrypted.
//
//mutant:replace t.Token == "" && t.ClientCA == "" && => false &&
func (t *TCP) Check(others, harm, instead string) error {
	host, _, err := net.SplitHostPort(t.Addr)
	if err != nil {
		return Usage("--listen is %q; write %san address of this machine such as 127.0.0.1:7400", t.Addr, others)
	}
	ip := net.ParseIP(host)
	loopback := host == "localhost" || ip != nil && ip.IsLoopback()
	open := harm == "" && loopback
	if harm == "" {
		harm = "see the tables"
	}
	switch {
	case t.Token == "" && t.ClientCA == "" && !open:
		return Usage("on TCP anybody could %s: give --token-file FILE, or --tls-client-ca FILE with --tls-cert and --tls-key%s", harm, instead)
	case (t.Cert == "") != (t.Key == ""):
		return Usage("--tls-cert and --tls-key go together")
	case !loopback && t.Cert == "":
		return Usage("the token would cross the network in the clear: give --tls-cert and --tls-key, or listen on 127.0.0.1")
	case (host == "" || ip != nil && ip.IsUnspecified()) && len(t.Hosts) == 0:
		return Usage("say with --host NAME under which name clients reach it, since --listen %s has none", t.Addr)
	}
	return nil
}

// Names are the values of Host that are served.
func (t *TCP) Names() []string {
	host, _, _ := net.SplitHostPort(t.Addr)
	names := t.Hosts
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
		names = append(names, host)
		if host == "localhost" || ip != nil && ip.IsLoopback() {
			names = append(names, "localhost")
		}
	}
	return names
}

// Bearer returns a function that reads the token, which may be replaced at any time; nil if there is none.
func (t *TCP) Bearer() func() (string, error) {
	if t.Token == "" {
		return nil
	}
	return func() (string, error) {
		b, err := os.ReadFile(t.Token)
		return strings.TrimSpace(string(b)), err
	}
}

// Listen listens, and says where.
func (t *TCP) Listen(ctx context.Context) (net.Listener, string, error) {
	if t.Token != "" {
		if token, err := t.Bearer()(); err != nil || token == "" {
			return nil, "", errors.Join(fmt.Errorf("the token file %s is empty or cannot be read", t.Token), err)
		}
	}
	if t.Cert != "" {
		if _, err := t.secure(nil); err != nil {
			return nil, "", err
		}
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", t.Addr)
	if err != nil {
		return nil, "", Usage("--listen %s: %v; write an address of this machine, such as 127.0.0.1:7400", t.Addr, err)
	}
	at := l.Addr().String()
	l = netutil.LimitListener(l, MaxConnections)
	if t.Cert == "" {
		return l, "http://" + at, nil
	}
	// A server speaks HTTP/2 only on what it sees to be TLS, so TLS comes last.
	return tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: t.secure}), "https://" + at, nil
}

// secure reads the certificates, which may be replaced at any time.
func (t *TCP) secure(*tls.ClientHelloInfo) (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}}
	if t.ClientCA == "" {
		return c, nil
	}
	pem, err := os.ReadFile(t.ClientCA)
	if err != nil {
		return nil, err
	}
	c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !c.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate in PEM", t.ClientCA)
	}
	return c, nil
}
