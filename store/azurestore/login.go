package azurestore

import (
	"context"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/fencepost/fencepost/store/internal/cloud"
)

const hintCredentials = "set AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_CONNECTION_STRING, or log in: az login, a managed identity, AZURE_CLIENT_ID and the rest"

// tokens marks the errors of getting a token, so that they can be told from an answer of
// the store.
type tokens struct {
	from  azcore.TokenCredential
	login cloud.Login
}

func newTokens(from azcore.TokenCredential) *tokens {
	return &tokens{from: from, login: cloud.Login{Driver: "azurestore"}}
}

func (t *tokens) GetToken(ctx context.Context, options policy.TokenRequestOptions) (azcore.AccessToken, error) {
	token, err := t.from.GetToken(ctx, options)
	return token, t.login.Note(err)
}
