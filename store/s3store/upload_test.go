package s3store_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fencepost/fencepost/internal/test/s3stub"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/s3store"
)

const mib = 1 << 20

func randomBody(size int) []byte {
	body := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(size)}).Read(body)
	return body
}

// parts are uploads in parts of 5 MiB.
func parts(t testing.TB, srv *s3stub.Server, opts s3store.Options) *s3store.Store {
	opts.PartSize = 5 * mib
	return embedded(t, srv, &opts)
}

func wantObject(t testing.TB, srv *s3stub.Server, st store.Store, key string, body []byte, info store.Info) {
	t.Helper()
	if stored, found := srv.Object("bucket", key); !found || !bytes.Equal(stored, body) {
		t.Errorf("%s: %d bytes stored, want %d", key, len(stored), len(body))
	}
	_, now := get(t, st, key, &store.GetOptions{Length: 1})
	if info.Key != key || info.Version == "" || info.Version != now.Version || info.Size != int64(len(body)) || info.Date.IsZero() {
		t.Errorf("%s: uploaded as %+v, found as %+v", key, info, now)
	}
	if n := srv.Uploads(); n != 0 {
		t.Errorf("%d uploads are left behind", n)
	}
}

func TestUploadSizes(t *testing.T) {
	for checksum, sizes := range map[s3store.Checksum][]int{
		s3store.CRC32C: {1, 5*mib - 1, 5 * mib, 5*mib + 1, 12 * mib}, s3store.NoChecksum: {6 * mib},
	} {
		for _, size := range sizes {
			srv := start(t, nil)
			st := parts(t, srv, s3store.Options{Checksum: checksum})
			body := randomBody(size)
			// A file that is a Seeker and cannot seek, as stdin is.
			info, err := st.Upload(t.Context(), "k", brokenSeeker{bytes.NewReader(body)}, &store.UploadOptions{Create: true})
			if err != nil {
				t.Fatalf("%s, %d bytes: %v", checksum, size, err)
			}
			wantObject(t, srv, st, "k", body, info)
			c := srv.Counts()
			if single := c.Of(s3stub.PutObject) == 1; single != (size < 5*mib) {
				t.Errorf("%d bytes: %v", size, c)
			}
			// A second one is refused and leaves the first as it was.
			_, err = st.Upload(t.Context(), "k", bytes.NewReader(randomBody(size+1)), &store.UploadOptions{Create: true})
			if store.OutcomeOf(err) != store.Refused {
				t.Errorf("%s, %d bytes again: got %v, want a refusal", checksum, size, err)
			}
			wantObject(t, srv, st, "k", body, info)
		}
	}
}

// The version of an upload is the one that reads show.
func TestVersionOfUpload(t *testing.T) {
	srv := start(t, &s3stub.Options{OddCompletion: true})
	st := parts(t, srv, s3store.Options{})
	body := randomBody(6 * mib)
	info, err := st.Upload(t.Context(), "k", bytes.NewReader(body), nil)
	if err != nil {
		t.Fatal(err)
	}
	wantObject(t, srv, st, "k", body, info)
	srv.SetFault(s3stub.Every(s3stub.HeadObject, s3stub.Fault{Status: 503, Code: "SlowDown"}))
	if info, err = st.Upload(t.Context(), "l", bytes.NewReader(body), nil); err != nil || info.Version != "odd" {
		t.Errorf("without a look at it: %+v, %v; want what the completion said", info, err)
	}
}

type brokenSeeker struct{ io.Reader }

func (brokenSeeker) Seek(int64, int) (int64, error) { return 0, os.ErrInvalid }

// The reply to the completion is lost. A retry would hear NoSuchUpload; the
// object is there.
func TestT33_LostReplyOfCompletion(t *testing.T) {
	srv := start(t, nil)
	st := parts(t, srv, s3store.Options{})
	body := randomBody(11 * mib)
	for name, fault := range map[string]s3stub.Fault{
		"dropped":        s3stub.Lost,
		"500":            {Status: 500, Code: "InternalError", Apply: true},
		"200 with error": {Status: 200, Code: "InternalError", Apply: true},
		"NoSuchUpload":   {Status: 404, Code: "NoSuchUpload", Apply: true},
		"409":            {Status: 409, Code: "ConditionalRequestConflict", Apply: true},
	} {
		srv.Reset()
		srv.SetFault(s3stub.Nth(s3stub.CompleteMultipartUpload, 1, fault))
		info, err := st.Upload(t.Context(), name, bytes.NewReader(body), &store.UploadOptions{Create: true})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		c := srv.Counts()
		if c.Of(s3stub.CompleteMultipartUpload) != 1 || c.Of(s3stub.AbortMultipartUpload) != 0 {
			t.Errorf("%s: %v; want one completion and no abort", name, c)
		}
		wantObject(t, srv, st, name, body, info)
	}
	// The same for a small body.
	for name, fault := range map[string]s3stub.Fault{"small": s3stub.Lost, "small 503": {Status: 503, Code: "SlowDown", Apply: true}} {
		srv.SetFault(s3stub.Nth(s3stub.PutObject, 1, fault))
		info, err := st.Upload(t.Context(), name, strings.NewReader("body"), &store.UploadOptions{Create: true})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		wantObject(t, srv, st, name, []byte("body"), info)
	}
}

// The completion landed after the look at the key and before the abort.
func TestT33_CompletionLandsBeforeTheAbort(t *testing.T) {
	srv := start(t, nil)
	st := parts(t, srv, s3store.Options{})
	body := randomBody(6 * mib)
	late, landed := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	looks := 0
	srv.SetFault(func(r *s3stub.Request) *s3stub.Fault {
		switch r.Op {
		case s3stub.CompleteMultipartUpload:
			// Its client gives up; the request is still on its way.
			return &s3stub.Fault{Received: cancel, Wait: late, Applied: func() { close(landed) }}
		case s3stub.HeadObject:
			looks++
		case s3stub.AbortMultipartUpload:
			if looks != 1 {
				t.Errorf("%d looks before the abort, want 1", looks)
			}
			close(late)
			return &s3stub.Fault{Wait: landed}
		}
		return nil
	})
	info, err := st.Upload(ctx, "k", bytes.NewReader(body), nil)
	if err != nil {
		t.Fatal(err)
	}
	wantObject(t, srv, st, "k", body, info)
}

// A completion that fails for good leaves neither object nor parts.
func TestT33_FailedCompletion(t *testing.T) {
	body := randomBody(6 * mib)
	for name, row := range map[string]struct {
		fault s3stub.Fault
		want  store.Outcome
	}{
		"lost before":      {s3stub.Fault{Drop: true}, store.Unknown},
		"409: parts again": {s3stub.Fault{Status: 409, Code: "ConditionalRequestConflict"}, store.Unknown},
		"500":              {s3stub.Fault{Status: 500, Code: "InternalError"}, store.Unknown},
		"403":              {s3stub.Fault{Status: 403, Code: "AccessDenied"}, store.Rejected},
		"501":              {s3stub.Fault{Status: 501, Code: "NotImplemented"}, store.Rejected},
		"412":              {s3stub.Fault{Status: 412, Code: "PreconditionFailed"}, store.Refused},
	} {
		srv := start(t, nil)
		st := parts(t, srv, s3store.Options{})
		srv.SetFault(s3stub.Every(s3stub.CompleteMultipartUpload, row.fault))
		_, err := st.Upload(t.Context(), "k", bytes.NewReader(body), &store.UploadOptions{Create: true})
		if store.OutcomeOf(err) != row.want || asError(t, err).Op != "upload" {
			t.Errorf("%s: got %v, want %v", name, err, row.want)
		}
		if n := srv.Counts().Of(s3stub.CompleteMultipartUpload); n != 1 {
			t.Errorf("%s: %d completions, want 1", name, n)
		}
		if _, found := srv.Object("bucket", "k"); found || srv.Uploads() != 0 {
			t.Errorf("%s: object %v, %d uploads left behind", name, found, srv.Uploads())
		}
	}
}

// An object with other bytes under the key is somebody else's, also if it has the same size.
//
// guard:own-upload. Without the id: A draws a name for a file, and its machine is cloned before the
// upload draws its id; A's last request is lost; clone B's object of the same size is under the key; A
// takes it for its own, and A's edit names a file with B's bytes.
func TestT33_SomebodyElsesObject(t *testing.T) {
	mine := randomBody(6 * mib)
	other := bytes.Clone(mine)
	other[5*mib+1]++
	for name, c := range map[string]struct{ there, mine string }{
		"another size": {"other", string(mine)}, "same size": {string(other), string(mine)}, "same size, small": {"yours", "mines"},
	} {
		srv := start(t, nil)
		st := parts(t, srv, s3store.Options{})
		put(t, st, "k", c.there, store.IfAbsent())
		srv.SetFault(func(r *s3stub.Request) *s3stub.Fault {
			if r.Op == s3stub.CompleteMultipartUpload || r.Op == s3stub.PutObject {
				return &s3stub.Fault{Drop: true}
			}
			return nil
		})
		if _, err := st.Upload(t.Context(), "k", strings.NewReader(c.mine), nil); store.OutcomeOf(err) != store.Unknown {
			t.Errorf("%s: got %v", name, err)
		}
		if srv.Uploads() != 0 {
			t.Errorf("%s: parts are left behind", name)
		}
	}
}

// Parts that cannot be removed are named, in the error and in the log.
func TestPartsLeftBehindAreReported(t *testing.T) {
	srv := start(t, nil)
	core, logs := observer.New(zap.DebugLevel)
	st := parts(t, srv, s3store.Options{Logger: zap.New(core)})
	srv.SetFault(func(r *s3stub.Request) *s3stub.Fault {
		switch r.Op {
		case s3stub.CompleteMultipartUpload, s3stub.AbortMultipartUpload:
			return &s3stub.Fault{Status: 503, Code: "SlowDown"}
		}
		return nil
	})
	_, err := st.Upload(t.Context(), "k", bytes.NewReader(randomBody(6*mib)), nil)
	warned := logs.FilterMessageSnippet("left behind").All()
	if srv.Uploads() != 1 || len(warned) != 1 {
		t.Fatalf("%d uploads left, log %v", srv.Uploads(), logs.All())
	}
	id, _ := warned[0].ContextMap()["upload"].(string)
	if id == "" || !strings.Contains(asError(t, err).Hint, id) {
		t.Errorf("the upload %q is not in the error: %v", id, err)
	}
}

// What may pass is tried again, whatever the store calls it: a part that was refused with it would end a
// file of gigabytes.
func TestTransientAnswersToParts(t *testing.T) {
	body := randomBody(6 * mib)
	for name, f := range map[string]s3stub.Fault{
		"429": {Status: 429, Code: "TooManyRequests"}, "429 without a code": {Status: 429}, "409": {Status: 409, Code: "OperationAborted"},
		"408": {Status: 408}, "a damaged body": {Status: 400, Code: "BadDigest"}, "a slow one": {Status: 400, Code: "RequestTimeout"}, "503": {Status: 503},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits before it tries again
			srv := start(t, nil)
			st := parts(t, srv, s3store.Options{})
			srv.SetFault(s3stub.Nth(s3stub.UploadPart, 1, f))
			info, err := st.Upload(t.Context(), name, bytes.NewReader(body), nil)
			if err != nil {
				t.Fatal(err)
			}
			wantObject(t, srv, st, name, body, info)
		})
	}
}

// A part may be sent again: it is named by its number.
func TestPartsAreRetried(t *testing.T) {
	srv := start(t, nil)
	st := parts(t, srv, s3store.Options{})
	body := randomBody(11 * mib)
	srv.SetFault(s3stub.Nth(s3stub.UploadPart, 2, s3stub.Lost))
	info, err := st.Upload(t.Context(), "k", bytes.NewReader(body), nil)
	if err != nil {
		t.Fatal(err)
	}
	wantObject(t, srv, st, "k", body, info)
	if n := srv.Counts().Of(s3stub.UploadPart); n != 4 {
		t.Errorf("%d parts were sent, want 3 and one again", n)
	}
	srv.SetFault(s3stub.Every(s3stub.UploadPart, s3stub.Fault{Status: 403, Code: "AccessDenied"}))
	if _, err := st.Upload(t.Context(), "l", bytes.NewReader(body), nil); !errors.Is(err, store.ErrDenied) || srv.Uploads() != 0 {
		t.Errorf("denied: got %v, %d uploads left", err, srv.Uploads())
	}
	srv.Reset()
	srv.SetFault(s3stub.Every(s3stub.CreateMultipartUpload, s3stub.Fault{Drop: true}))
	if _, err := st.Upload(t.Context(), "m", bytes.NewReader(body), nil); store.OutcomeOf(err) != store.Unknown || srv.Counts().Total() != 1 {
		t.Errorf("no beginning: got %v after %v", err, srv.Counts())
	}
}

// A store that begins an upload without an id must not crash anybody.
func TestUploadWithoutID(t *testing.T) {
	srv := start(t, nil)
	st := parts(t, srv, s3store.Options{})
	srv.SetFault(s3stub.Every(s3stub.CreateMultipartUpload, s3stub.Fault{Status: 200}))
	if _, err := st.Upload(t.Context(), "k", bytes.NewReader(randomBody(6*mib)), nil); err == nil || asError(t, err).Kind != nil {
		t.Errorf("got %v", err)
	}
	srv.SetFault(func(r *s3stub.Request) *s3stub.Fault {
		if r.Op == s3stub.PutObject {
			return &s3stub.Fault{Edit: func(h http.Header) { h.Del("Etag") }}
		}
		return nil
	})
	info, err := st.Upload(t.Context(), "l", strings.NewReader("x"), nil)
	if err != nil || info.Version == "" {
		t.Errorf("without an ETag in the answer: %+v, %v; want what a look at the key shows", info, err)
	}
}

type failingReader struct {
	left int
	err  error
}

func (r *failingReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, r.err
	}
	n := min(len(p), r.left)
	r.left -= n
	return n, nil
}

func TestBodyFails(t *testing.T) {
	mine := &store.Error{Op: "get", Key: "elsewhere", Kind: store.ErrNotFound}
	for _, size := range []int{0, 100, 5 * mib, 11 * mib} {
		srv := start(t, nil)
		st := parts(t, srv, s3store.Options{})
		_, err := st.Upload(t.Context(), "k", &failingReader{size, mine}, nil)
		if e := asError(t, err); e.Op != "upload" || e.Key != "k" || !errors.Is(err, mine) || mine.Key != "elsewhere" {
			t.Errorf("after %d bytes: got %v", size, err)
		}
		if _, found := srv.Object("bucket", "k"); found || srv.Uploads() != 0 {
			t.Errorf("after %d bytes: object %v, %d uploads left", size, found, srv.Uploads())
		}
	}
}

func TestUploadCancelled(t *testing.T) {
	srv := start(t, nil)
	st := parts(t, srv, s3store.Options{})
	_, err := st.Upload(canceledContext(t), "k", strings.NewReader("x"), nil)
	if !errors.Is(err, context.Canceled) || srv.Counts().Total() != 0 {
		t.Errorf("before: got %v, %v", err, srv.Counts())
	}
	ctx, cancel := context.WithCancel(t.Context())
	srv.SetFault(func(r *s3stub.Request) *s3stub.Fault {
		if r.Op == s3stub.UploadPart {
			cancel()
		}
		return nil
	})
	_, err = st.Upload(ctx, "k", &failingReader{left: 1 << 40, err: io.EOF}, nil)
	if e := asError(t, err); !errors.Is(err, context.Canceled) || e.Kind != nil {
		t.Errorf("during: got %v", err)
	}
	if _, found := srv.Object("bucket", "k"); found || srv.Uploads() != 0 {
		t.Errorf("during: object %v, %d uploads left", found, srv.Uploads())
	}
}

func TestSizeHint(t *testing.T) {
	srv := start(t, nil)
	st := parts(t, srv, s3store.Options{})
	for _, hint := range []int64{-1, 1 << 60} {
		if _, err := st.Upload(t.Context(), "k", strings.NewReader("x"), &store.UploadOptions{SizeHint: hint}); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("hint %d: got %v", hint, err)
		}
	}
	// 60 GiB need parts of 8 MiB: what is shorter is one PUT.
	if _, err := st.Upload(t.Context(), "k", bytes.NewReader(randomBody(7*mib)), &store.UploadOptions{SizeHint: 60 << 30}); err != nil {
		t.Fatal(err)
	}
	if c := srv.Counts(); c.Of(s3stub.PutObject) != 1 || c.Total() != 1 {
		t.Errorf("requests: %v", c)
	}
}

func TestLogsAndErrorsHaveNoSecrets(t *testing.T) {
	srv := start(t, nil)
	core, logs := observer.New(zap.DebugLevel)
	st := parts(t, srv, s3store.Options{Logger: zap.New(core)})
	srv.SetFault(func(r *s3stub.Request) *s3stub.Fault {
		if r.Op == s3stub.CreateMultipartUpload || r.Op == s3stub.UploadPart {
			return nil
		}
		return &s3stub.Fault{Status: 403, Code: "SignatureDoesNotMatch"}
	})
	var text strings.Builder
	for _, op := range []s3stub.Op{s3stub.PutObject, s3stub.GetObject, s3stub.ListObjectsV2, s3stub.DeleteObject, s3stub.DeleteObjects} {
		text.WriteString(do(t.Context(), st, op, store.IfAbsent()).Error())
	}
	_, err := st.Upload(t.Context(), "k", bytes.NewReader(randomBody(6*mib)), nil)
	text.WriteString(err.Error() + st.Traits().Name)
	for _, entry := range logs.All() {
		text.WriteString(entry.Message)
		for _, field := range entry.Context {
			text.WriteString(field.Key + field.String)
			if e, isErr := field.Interface.(error); isErr {
				text.WriteString(e.Error())
			}
		}
	}
	if logs.Len() == 0 {
		t.Error("nothing was logged")
	}
	if strings.Contains(text.String(), secret) || strings.Contains(text.String(), "AWS4-HMAC") {
		t.Errorf("a secret is in:\n%s", text.String())
	}
}
