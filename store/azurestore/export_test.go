package azurestore

import (
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/fencepost/fencepost/store/internal/cloud"
)

// Marked marks the errors of a credential, as those of Open are.
func Marked(from azcore.TokenCredential) azcore.TokenCredential {
	t, _ := newTokens(func() (azcore.TokenCredential, error) { return from, nil })
	return t
}

// WithTokens opens a container with credentials that find finds, as Open does.
func WithTokens(url string, base http.RoundTripper, find func() (azcore.TokenCredential, error)) (*Store, error) {
	doubt := new(cloud.Doubt)
	found, err := newTokens(find)
	if err != nil {
		return nil, err
	}
	doubt.Look = found.look
	client, err := container.NewClient(url, found, clientOptions(doubt.Over(base)))
	if err != nil {
		return nil, err
	}
	st, err := New(client, nil)
	if err == nil {
		st.doubt = doubt
	}
	return st, err
}
