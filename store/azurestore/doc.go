// Package azurestore keeps objects as block blobs in a container of Azure Blob
// Storage.
//
// # What it guarantees
//
// A version is a blob's ETag without its quotes. A create is a write with
// If-None-Match: *, a swap one with If-Match.
//
// Every method makes one attempt. The SDK's retries are off for each call, whatever the
// client's configuration, because a retry hides the outcome of the attempt before; package
// store retries. Only the blocks of a large upload are sent again: they have random names,
// and nobody sees them before the commit.
//
// Answers are classified by HTTP status first and error code second. Azure
// refuses a create of a blob that exists with 409 BlobAlreadyExists, and with
// 403 UnauthorizedBlobOverwrite if the credentials may create but not replace. Any other
// 409 is of unknown outcome, and so are timeouts, resets, 429 and 5xx.
// Bodies are sent with their CRC-64, which the service checks.
//
// If the commit of a large upload gets no answer, the driver reads the blob, which has the
// upload's own mark in its metadata.
//
// # What it does not guarantee
//
// Lifecycle rules of the account may delete blobs. An interrupted upload leaves invisible
// blocks, which the service deletes after a week. A listing always reads from the first
// key: the driver applies ListOptions.StartAfter itself. Listings leave out keys that
// package store does not accept, and directories of accounts with a hierarchical
// namespace. A blob cannot be written while another client holds a lease on it.
//
// # URLs
//
//	az://container/prefix?account=name
//	az://container/prefix?endpoint=http://127.0.0.1:10000/devstoreaccount1
//
// Credentials come from AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_KEY or
// AZURE_STORAGE_SAS_TOKEN, or else from where DefaultAzureCredential finds them:
// AZURE_CLIENT_ID and the rest, a managed identity, az login. The parameters:
//
//	account     the storage account; default AZURE_STORAGE_ACCOUNT
//	endpoint    where the account's blobs are; default
//	            https://ACCOUNT.blob.core.windows.net. An emulator has the account
//	            in the path: http://127.0.0.1:10000/devstoreaccount1
//	anonymous   true: send no credentials
//	block-size  of large uploads, in bytes
package azurestore
