package push

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// Announcement is what a leader says of itself in its lock, as JSON: leader.Options.Announce.
type Announcement struct {
	// Tail is an address of TCP, such as 10.0.0.7:7401, where readers are told. It speaks TLS with the certificate whose
	// SHA-256 is Cert, and wants Token.
	Tail  string `json:"tail,omitempty"`
	Cert  string `json:"cert,omitempty"`
	Token string `json:"token,omitempty"`
	// Agent is where the agent is that leads, for its own clients: unix:PATH of the machine Host.
	Agent string `json:"agent,omitempty"`
	Host  string `json:"host,omitempty"`
}

// String returns the text for the lock.
func (a Announcement) String() string {
	b, err := json.Marshal(a)
	if err != nil || a == (Announcement{}) {
		return ""
	}
	return string(b)
}

// Parse reads what a lock says. Text of other programs is an empty Announcement.
func Parse(text string) (a Announcement) {
	if json.Unmarshal([]byte(text), &a) != nil {
		return Announcement{}
	}
	return a
}

// Identity is a key that lasts as long as the process, and a token for readers. Whoever may read the lock knows how to tell
// its holder by it.
type Identity struct {
	Config *tls.Config // of the server
	Cert   string
	Token  string
}

// NewIdentity makes an identity.
func NewIdentity() (*Identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &Identity{
		Config: &tls.Config{
			MinVersion: tls.VersionTLS13, NextProtos: []string{"h2", "http/1.1"},
			Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		},
		Cert: fingerprint(der), Token: rand.Text(),
	}, nil
}

func fingerprint(der []byte) string {
	sum := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Pinned accepts the server with this certificate only.
func Pinned(cert string) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, //nolint:gosec // the lock names the certificate itself, and no authority
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 {
				return errors.New("push: the leader has shown no certificate")
			}
			// guard:push-cert. A reader talks only to who has the key of the certificate that the lock names.
			//
			//mutant:replace subtle.ConstantTimeCompare([]byte(fingerprint(s.PeerCertificates[0].Raw)), []byte(cert)) != 1 => subtle.ConstantTimeCompare([]byte(fingerprint(s.PeerCertificates[0].Raw)), []byte(cert)) > 1
			if subtle.ConstantTimeCompare([]byte(fingerprint(s.PeerCertificates[0].Raw)), []byte(cert)) != 1 {
				return fmt.Errorf("push: the certificate %s is not the one in the lock, %s", fingerprint(s.PeerCertificates[0].Raw), cert)
			}
			return nil
		},
	}
}
