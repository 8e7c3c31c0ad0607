package azurestore_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	sdkblob "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/azurestore"
)

// early answers a request without having read its body, and keeps that, as
// net/http's writing goroutine may.
type early struct {
	status int
	sum    string
	body   io.Reader
}

func (e *early) Do(r *http.Request) (*http.Response, error) {
	e.sum, e.body = "", r.Body
	for name, values := range r.Header { // the SDK does not write it as others do
		if strings.EqualFold(name, "x-ms-content-crc64") {
			e.sum = values[0]
		}
	}
	return &http.Response{
		StatusCode: e.status, Status: http.StatusText(e.status), Request: r, Body: http.NoBody,
		Header: http.Header{"Etag": {`"1"`}, "X-Ms-Error-Code": {"BlobAlreadyExists"}},
	}, nil
}

// through returns a store, and the SDK's client, whose requests go to e.
func through(t *testing.T, e *early) (*azurestore.Store, *container.Client) {
	t.Helper()
	client, err := container.NewClientWithNoCredential("http://127.0.0.1/box", &container.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: e}})
	if err != nil {
		t.Fatal(err)
	}
	st, err := azurestore.New(client, nil)
	if err != nil {
		t.Fatal(err)
	}
	return st, client
}

// The body is its caller's again when Put has returned, whatever was answered: what
// then writes into it must not send those bytes in the request of before.
func TestBodyIsTakenBack(t *testing.T) {
	for _, status := range []int{http.StatusCreated, http.StatusConflict, http.StatusForbidden} {
		e := &early{status: status}
		st, _ := through(t, e)
		body := []byte("lent")
		if _, err := st.Put(t.Context(), "k", body, &store.PutOptions{If: store.IfAbsent()}); (err == nil) != (status == http.StatusCreated) {
			t.Fatal(status, err)
		}
		copy(body, "mine")
		if e.body == nil {
			t.Fatalf("%d: no body was sent", status)
		}
		if got, err := io.ReadAll(e.body); len(got) > 0 || err == nil {
			t.Errorf("%d: %q was read after Put had returned", status, got)
		}
	}
}

// The checksum is the one that the SDK would have sent.
func TestChecksum(t *testing.T) {
	e := &early{status: http.StatusCreated}
	st, client := through(t, e)
	for _, body := range []string{"", "a", "some more bytes than a word has"} {
		if _, err := st.Put(t.Context(), "k", []byte(body), &store.PutOptions{If: store.IfAbsent()}); err != nil {
			t.Fatal(err)
		}
		got := e.sum
		_, err := client.NewBlockBlobClient("k").Upload(t.Context(), streaming.NopCloser(strings.NewReader(body)),
			&blockblob.UploadOptions{TransactionalValidation: sdkblob.TransferValidationTypeComputeCRC64()})
		if err != nil {
			t.Fatal(err)
		}
		if got == "" || got != e.sum {
			t.Errorf("%q: %s, the SDK's is %s", body, got, e.sum)
		}
	}
}
