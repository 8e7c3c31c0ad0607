package azurestore

import (
	"io"
	"net"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

// maxAnswer bounds every answer but a blob: a page of a listing with keys of full
// length, each letter escaped, has some 7 MiB.
const maxAnswer = 8 << 20

// ClientOptions are those that a client for [New] should be made with: enough
// connections for a writer's pipeline, and answers that are read within bounds.
func ClientOptions() *container.ClientOptions {
	return &container.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: &transport{client: httpClient()}}}
}

// transport is what the SDK sends its requests through.
type transport struct{ client *http.Client }

func (t *transport) Do(r *http.Request) (*http.Response, error) {
	resp, err := t.client.Do(r)
	if err != nil {
		return nil, err
	}
	// guard:bounded-answer. What is no blob is read into memory by the SDK.
	if blob := resp.StatusCode/100 == 2 && r.Method == http.MethodGet && r.URL.Query().Get("comp") == ""; !blob {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	}
	return resp, nil
}

func httpClient() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // it is one unless somebody has replaced it
	t.DialContext = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	t.MaxIdleConns = 0 // no limit but the next line's
	t.MaxIdleConnsPerHost = 256
	t.WriteBufferSize = 64 << 10
	t.ReadBufferSize = 32 << 10
	// Committing an upload of many blocks may take a while; whoever wants an
	// answer sooner has a context.
	t.ResponseHeaderTimeout = 2 * time.Minute
	return &http.Client{Transport: t}
}
