package cloud

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// MaxAnswer bounds every answer but an object, in bytes. A page of a listing with the longest
// keys, each letter escaped, has 4 to 7 MiB.
const MaxAnswer = 8 << 20

// MaxTags bounds the tags and attributes of an answer in XML. A page of a listing has 1,000 objects, of which some servers send up
// to 80 tags each.
const MaxTags = 200 * PageSize

// Answer cuts an answer in XML at [MaxAnswer], and one with more than [MaxTags] there: SDKs make up to 100 bytes of each byte
// of short tags, and 50 of each byte of short attributes.
func Answer(body io.ReadCloser) io.ReadCloser {
	return &tags{ReadCloser: Limited(body, MaxAnswer), left: MaxTags}
}

type tags struct {
	io.ReadCloser
	left   int
	inside bool // a tag
	quote  byte // in which the value of an attribute stands, or 0
}

func (t *tags) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	for _, c := range p[:n] {
		switch {
		case c == '<': // never in a value
			t.left--
			t.inside, t.quote = true, 0
		case !t.inside:
		case t.quote != 0:
			if c == t.quote {
				t.quote = 0
			}
		case c == '"', c == '\'':
			t.quote = c
		case c == '=':
			t.left--
		case c == '>':
			t.inside = false
		}
	}
	// guard:sparse-tags. An answer in XML has at most 200,000 tags and attributes.
	if t.left < 0 {
		return 0, fmt.Errorf("the answer has more than %d tags and attributes", MaxTags)
	}
	return n, err
}

// MaxCredentials bounds the answer of those who give out credentials, in bytes. SDKs put it into their errors.
const MaxCredentials = 256 << 10

// CredentialsTimeout bounds a request for credentials. SDKs ask once for all requests that wait, whatever time these have, and some
// ask without any limit: a service that hangs once would keep credentials away for ever.
const CredentialsTimeout = 10 * time.Second

// Transport returns an HTTP transport that is tuned: see [Tune].
func Transport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // it is one unless somebody has replaced it
	t.DialContext = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	t.DisableCompression = true // objects come as they are stored
	Tune(t)
	return t
}

// Credentials returns a client for those who give out credentials: each of their answers is cut at [MaxCredentials], and takes no
// longer than [CredentialsTimeout].
func Credentials() *http.Client {
	return Straight(http.Client{Transport: bounded{Transport()}, Timeout: CredentialsTimeout})
}

// Metadata is [Credentials] for the machine's own metadata service: no proxy is asked, and an answer takes no longer than 5 s.
func Metadata() *http.Client {
	t := Transport()
	t.Proxy = nil
	return Straight(http.Client{Transport: bounded{t}, Timeout: 5 * time.Second})
}

// Straight returns the client c, but it follows no redirect. A redirected request has no signature any more, so the answer
// would be a 403, which says nothing about this store and ends terms. It could also go to anybody, over plain HTTP.
func Straight(c http.Client) *http.Client {
	// guard:no-redirect. A request goes to the endpoint that the user has named, and to no other.
	//
	//mutant:replace http.ErrUseLastResponse => nil
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &c
}

type bounded struct{ base http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.base.RoundTrip(r)
	if err == nil {
		resp.Body = Limited(resp.Body, MaxCredentials)
	}
	return resp, err
}

// Tune makes a transport keep enough connections open for a writer's pipeline. With the ten
// of an SDK, every burst of appends would open and close connections.
func Tune(t *http.Transport) {
	t.MaxIdleConns = 0 // no limit but the next line's
	t.MaxIdleConnsPerHost = 256
	t.WriteBufferSize = 64 << 10
	t.ReadBufferSize = 32 << 10
	// Committing an upload of many parts may take a while. A caller that wants an answer
	// sooner has a context.
	t.ResponseHeaderTimeout = 2 * time.Minute
	// Over HTTP/2 all requests share one connection. If it dies without a word, a request that runs
	// into its context's deadline leaves it open, and so the next heartbeat is sent on it too. A ping
	// finds out within 20 s. Its answer may take 15 s of these, because the kernel sends a ping after
	// the bytes of an upload that it already has, up to 4 MiB. With 5 s, uploads failed on a line of
	// 800 KB/s to a proxy that says nothing until it has a whole body.
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: 5 * time.Second, PingTimeout: 15 * time.Second}
}
