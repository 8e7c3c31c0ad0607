package azurestore

import "github.com/Azure/azure-sdk-for-go/sdk/azcore"

// Marked marks the errors of a credential, as those of Open are.
func Marked(from azcore.TokenCredential) azcore.TokenCredential { return newTokens(from) }
