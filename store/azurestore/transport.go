package azurestore

import (
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/fencepost/fencepost/store/internal/cloud"
)

// maxAnswer bounds every answer but a blob: a page of a listing with keys of full
// length, each letter escaped, has some 7 MiB.
const maxAnswer = 8 << 20

// ClientOptions are those that a client for [New] should be made with: enough
// connections for a writer's pipeline, and answers that are read within bounds.
func ClientOptions() *container.ClientOptions {
	return &container.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: &transport{client: &http.Client{Transport: cloud.Transport()}}}}
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
		resp.Body = cloud.Limited(resp.Body, maxAnswer)
	}
	return resp, nil
}
