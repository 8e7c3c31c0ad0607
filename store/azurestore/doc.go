// Package azurestore keeps objects as block blobs in a container of Azure Blob
// Storage.
//
// # What it guarantees
//
// A version is a blob's ETag without its quotes. A create is a write with
// If-None-Match: *, a swap one with If-Match.
//
// Every method makes one attempt: the SDK's retries are off for each call, also
// for a client that the caller configured otherwise, because a retry hides what
// became of the attempt before it. Package store has the one loop that tries
// again. Only the blocks of a large upload are sent again here: they are named
// at random and nobody sees them before they are committed.
//
// Answers are classified by HTTP status first and error code second. Azure
// refuses a create of a blob that exists with 409 BlobAlreadyExists, and with
// 403 UnauthorizedBlobOverwrite if the credentials may create and not replace;
// any other 409 is of unknown outcome, as are timeouts, resets, 429 and 5xx.
// Bodies are sent with their CRC-64, which the service checks.
//
// A large upload whose commit got no answer is settled by looking at the blob,
// which carries the upload's own mark in its metadata.
//
// # What it does not guarantee
//
// That nothing else deletes blobs: lifecycle rules of the account do. That an
// upload which broke off leaves nothing at all: its uncommitted blocks stay,
// invisible, until the service drops them after a week. Listings begin at the
// beginning: ListOptions.StartAfter only saves what comes back from the driver.
// Keys that package store would not accept, and directories of accounts with a
// hierarchical namespace, are left out of listings. A blob on which somebody
// else holds a lease cannot be written.
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
