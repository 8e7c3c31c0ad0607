package azurestore

import (
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/fencepost/fencepost/store/internal/cloud"
)

// ClientOptions returns the options for a client that is given to [New]: with enough
// connections for a writer's pipeline, and a bound on every answer.
func ClientOptions() *container.ClientOptions { return clientOptions(cloud.Transport()) }

func clientOptions(base http.RoundTripper) *container.ClientOptions {
	return &container.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: &transport{client: cloud.Straight(http.Client{Transport: base})}}}
}

// transport sends the SDK's requests.
type transport struct{ client *http.Client }

func (t *transport) Do(r *http.Request) (*http.Response, error) {
	resp, err := t.client.Do(r)
	if err != nil {
		return nil, err
	}
	// guard:bounded-answer. Every answer but a blob is cut at 8 MiB.
	if blob := resp.StatusCode/100 == 2 && r.Method == http.MethodGet && r.URL.Query().Get("comp") == ""; !blob {
		resp.Body = cloud.Answer(resp.Body)
	}
	return resp, nil
}
