package azurestore_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
	"github.com/fencepost/fencepost/store/internal/cloud/cloudtest"
)

// The SDK sends a request again three times by default, and shows the 409 or 412
// that one's own first attempt caused. Here every method is one request.
//
// guard:one-attempt. Without this setting: the connection of A's create breaks; the SDK sends the
// create again, and gets 403, because A's credentials have expired; A sees only the 403, and reports
// that nothing was written; the first request is applied after all.
func TestT05_OneAttempt(t *testing.T) {
	for what, f := range map[string]fault{
		"lost before": {Drop: true}, "lost after": {Lost: true},
		"408": says(408, ""), "429": says(429, ""), "500": says(500, "InternalError"), "503": says(503, "ServerBusy"),
	} {
		t.Run(what, func(t *testing.T) {
			az := newStub()
			st := serve(t, az)
			for kind, ask := range map[string]func() error{
				"put": func() error {
					_, err := st.Put(t.Context(), "k", []byte("x"), &store.PutOptions{If: store.IfAbsent()})
					return err
				},
				"delete": func() error { return st.Delete(t.Context(), "k") },
				"get":    func() error { _, _, err := cloudtest.Get(t, st, "k", nil); return err },
				"list":   func() error { return cloudtest.ListErr(t, st) },
			} {
				if (f.Drop || f.Lost) && (kind == "get" || kind == "list") {
					continue // net/http sends a read again on another connection
				}
				az.Reset()
				az.On(kind, 0, f)
				if err := ask(); err == nil || store.OutcomeOf(err) != store.Unknown {
					t.Errorf("%s: %v is %v, want unknown", kind, err, store.OutcomeOf(err))
				}
				if got := az.Kinds(); !slices.Equal(got, []string{kind}) {
					t.Errorf("%s: requests %v", kind, got)
				}
				az.Reset()
				if err := st.Delete(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// What became of an upload whose last request got no answer is told by the blob.
//
// guard:own-upload. Without the id: A draws a name for a file, and its machine is cloned before the
// upload draws its id; A's last request is lost; clone B's blob of the same size is under the key; A
// takes it for its own, and A's edit names a file with B's bytes.
func TestT33_UploadIsSettledByTheBlob(t *testing.T) {
	small, large := bytes.Repeat([]byte("x"), 1000), bytes.Repeat([]byte("0123456789"), 1000)
	for name, c := range map[string]struct {
		body     []byte
		kind     string
		fault    fault
		meddle   bool // another's blob of this size appears meanwhile
		ok       bool
		requests string
	}{
		"one request, reply lost":      {small, "put", fault{Lost: true}, false, true, "put look"},
		"one request, never arrived":   {small, "put", fault{Drop: true}, false, false, "put look"},
		"commit, reply lost":           {large, "commit", fault{Lost: true}, false, true, "block block block commit look"},
		"commit, never arrived":        {large, "commit", fault{Drop: true}, false, false, "block block block commit look"},
		"commit, 503":                  {large, "commit", says(503, ""), false, false, "block block block commit look"},
		"commit, another's blob there": {large, "commit", fault{Drop: true}, true, false, "block block block commit look"},
		"block refused":                {large, "block", says(403, ""), false, false, ""},
		"a block fails once":           {large, "block", says(500, ""), false, true, "block block block block commit"},
	} {
		t.Run(name, func(t *testing.T) {
			az := newStub()
			st := serve(t, az, "block-size=4000")
			az.On(c.kind, 1, c.fault)
			if c.meddle {
				az.Faults(func(kind string, _ int) *fault {
					if kind != "commit" {
						return nil
					}
					az.mu.Lock()
					defer az.mu.Unlock()
					az.blobs["k"] = blob{body: bytes.Repeat([]byte("y"), len(c.body)), etag: `"0x1"`, mark: "another's"}
					return &c.fault
				})
			}
			info, err := st.Upload(t.Context(), "k", bytes.NewReader(c.body), &store.UploadOptions{Create: true})
			if c.ok != (err == nil) || c.ok && (info.Size != int64(len(c.body)) || info.Version == "") {
				t.Errorf("got %+v, %v", info, err)
			}
			if got := strings.Join(az.Kinds(), " "); c.requests != "" && got != c.requests {
				t.Errorf("requests %s, want %s", got, c.requests)
			}
			if c.ok {
				if body, _, err := cloudtest.Get(t, st, "k", nil); err != nil || body != string(c.body) {
					t.Errorf("read %d bytes, %v", len(body), err)
				}
			} else if !c.meddle && len(az.keys()) != 0 {
				t.Errorf("there is %v", az.keys())
			}
		})
	}
}

// A server that answers without end does not fill the memory.
//
// guard:bounded-answer. Without this limit: a broken server, or a proxy before it, answers a listing
// with an endless body; the SDK reads it into memory until the process is killed.
func TestAnswersAreBounded(t *testing.T) {
	az := newStub()
	cloudtest.AnswersAreBounded(t, serve(t, az), &az.Stub, `<?xml version="1.0"?><EnumerationResults><Blobs><Blob><Name>`, "list")
}

// A short answer that unpacks to gigabytes does not fill the memory either.
func TestAnswersAreSparse(t *testing.T) {
	az := newStub()
	st := serve(t, az)
	for _, tag := range []string{"<Blob/>", "<a>"} {
		body := `<?xml version="1.0"?><EnumerationResults><Blobs>` + strings.Repeat(tag, cloud.MaxTags)
		az.On("list", 0, fault{Answers: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }})
		if err := cloudtest.ListErr(t, st); err == nil || !strings.Contains(err.Error(), "tags") {
			t.Errorf("%s: %v", tag, err)
		}
	}
}

// TestAnswers is the table of what each answer means to each kind of request.
//
// guard:created. Most other 409s of Azure mean an unknown outcome. Without this rule: A and B create
// lock 8, and A's create is applied; B's create gets the 409; B takes its outcome for unknown, reports
// a retry, and pauses before it reads the lock; each lost race takes longer than it must.
func TestAnswers(t *testing.T) {
	unknown, rejected := cloudtest.Unknown, cloudtest.Rejects
	for _, c := range []struct {
		status int
		code   string
		want   cloudtest.Means
	}{
		{412, "ConditionNotMet", cloudtest.Meaning(store.Refused, store.Refused, store.ErrPrecondition, store.ErrPrecondition)},
		{409, "BlobAlreadyExists", cloudtest.Meaning(store.Refused, store.Unknown, nil, nil)},
		{403, "UnauthorizedBlobOverwrite", cloudtest.Meaning(store.Refused, store.Rejected, store.ErrDenied, store.ErrDenied)},
		{404, "BlobNotFound", cloudtest.Meaning(store.Rejected, store.Refused, store.ErrNotFound, store.ErrNoBucket)},
		{404, "ContainerNotFound", rejected(store.ErrNoBucket)},
		{401, "NoAuthenticationInformation", rejected(store.ErrDenied)},
		{403, "AuthenticationFailed", rejected(store.ErrDenied)},
		{403, "AuthorizationPermissionMismatch", rejected(store.ErrDenied)},
		{409, "BlobImmutableDueToPolicy", rejected(store.ErrDenied)},
		{400, "InvalidHeaderValue", rejected(store.ErrInvalid)},
		{400, "Md5Mismatch", unknown}, {400, "Crc64Mismatch", unknown},
		{413, "RequestBodyTooLarge", rejected(store.ErrInvalid)},
		{405, "UnsupportedHttpVerb", rejected(store.ErrUnsupported)},
		{501, "", rejected(store.ErrUnsupported)},
		{409, "ContainerBeingDeleted", unknown}, {409, "", unknown}, {408, "", unknown}, {429, "", unknown},
		{500, "OperationTimedOut", unknown}, {502, "", unknown}, {503, "ServerBusy", unknown}, {504, "", unknown},
	} {
		t.Run(fmt.Sprint(c.status, " ", c.code), func(t *testing.T) {
			az := newStub()
			st := serve(t, az)
			az.Faults(func(string, int) *fault { f := says(c.status, c.code); return &f })
			create := cloudtest.Answered(t, st, "0x5", c.status, c.code, c.want)
			if !strings.Contains(create.Error(), "It is said") {
				t.Error(create)
			}
			if errors.Is(create, store.ErrNoBucket) && !strings.Contains(create.Error(), `create the container "box"`) {
				t.Errorf("no hint: %v", create)
			}
		})
	}
}

// Real servers run the whole suite too: see integration_test.go. It is the last test here, since it
// takes longer than all others.
func TestConformanceOfTheStub(t *testing.T) { cloudtest.Conformance(t, address(t, newStub()), true) }

func TestNoRedirectIsFollowed(t *testing.T) {
	cloudtest.Redirects(t, func(endpoint string) string { return "az://box?anonymous=true&endpoint=" + endpoint })
}

func TestSmallPages(t *testing.T) { cloudtest.SmallPages(t, serve(t, newStub())) }
