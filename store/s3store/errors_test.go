package s3store_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/test/s3stub"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud/cloudtest"
)

type answer struct {
	op     s3stub.Op
	cond   store.Condition
	fault  s3stub.Fault
	kind   error // nil: the answer tells nothing
	hint   string
	result store.Outcome // of a write
}

// do sends the operation's request once.
func do(ctx context.Context, st store.Store, op s3stub.Op, cond store.Condition) error {
	var err error
	switch op {
	case s3stub.PutObject:
		_, err = st.Put(ctx, "k", []byte("body"), &store.PutOptions{If: cond})
	case s3stub.GetObject:
		_, err = st.Get(ctx, "k", &store.GetOptions{IfNoneMatch: "v"})
	case s3stub.ListObjectsV2:
		for _, e := range st.List(ctx, "", nil) {
			err = e
		}
	case s3stub.DeleteObject:
		err = st.Delete(ctx, "k")
	case s3stub.DeleteObjects:
		err = st.Delete(ctx, "k", "l")
	}
	return err
}

// Each row is also the proof that nothing is retried: one request comes in.
func checkAnswers(t *testing.T, rows []answer) {
	srv := start(t, nil)
	for _, row := range rows {
		st := open(t, srv) // which has never taken these credentials
		name := fmt.Sprintf("%s %v: %d %s", row.op, row.cond, row.fault.Status, row.fault.Code)
		srv.SetFault(s3stub.Every(row.op, row.fault))
		srv.Reset()
		err := do(t.Context(), st, row.op, row.cond)
		if got := srv.Counts().Total(); got != 1 {
			t.Errorf("%s: %d requests, want 1", name, got)
		}
		e := asError(t, err)
		if !errors.Is(e.Kind, row.kind) {
			t.Errorf("%s: got kind %v, want %v (%v)", name, e.Kind, row.kind, err)
		}
		if row.op == s3stub.PutObject && store.OutcomeOf(err) != row.result {
			t.Errorf("%s: got outcome %v, want %v", name, store.OutcomeOf(err), row.result)
		}
		if e.Status != row.fault.Status || row.fault.Code != "" && e.Code != row.fault.Code {
			t.Errorf("%s: the error says %d %q", name, e.Status, e.Code)
		}
		if !strings.Contains(e.Hint, row.hint) {
			t.Errorf("%s: hint %q, want %q in it", name, e.Hint, row.hint)
		}
		if want := time.Duration(row.fault.RetryAfter) * time.Second; e.RetryAfter != want {
			t.Errorf("%s: retry after %v, want %v", name, e.RetryAfter, want)
		}
	}
}

var match = store.IfMatch("v")

func TestClassification(t *testing.T) {
	put, get, list, del, many := s3stub.PutObject, s3stub.GetObject, s3stub.ListObjectsV2, s3stub.DeleteObject, s3stub.DeleteObjects
	f := func(status int, code string) s3stub.Fault { return s3stub.Fault{Status: status, Code: code} }
	checkAnswers(t, []answer{
		{op: put, cond: store.IfAbsent(), fault: f(412, "PreconditionFailed"), kind: store.ErrPrecondition, result: store.Refused},
		{op: put, cond: match, fault: f(412, "PreconditionFailed"), kind: store.ErrPrecondition, result: store.Refused},
		{op: put, cond: match, fault: f(412, ""), kind: store.ErrPrecondition, result: store.Refused},
		{op: put, fault: f(404, "NoSuchBucket"), kind: store.ErrNoBucket, result: store.Rejected, hint: `create the bucket "bucket"`},
		{op: put, fault: f(404, ""), kind: store.ErrNoBucket, result: store.Rejected},
		{op: get, fault: f(404, "NoSuchKey"), kind: store.ErrNotFound},
		{op: get, fault: f(404, ""), kind: store.ErrNotFound},
		{op: get, fault: f(404, "NoSuchBucket"), kind: store.ErrNoBucket, hint: "at http://127.0.0.1"},
		{op: list, fault: f(404, "NoSuchBucket"), kind: store.ErrNoBucket},
		{op: list, fault: f(404, ""), kind: store.ErrNoBucket},
		{op: del, fault: f(404, "NoSuchBucket"), kind: store.ErrNoBucket},
		{op: many, fault: f(404, "NoSuchBucket"), kind: store.ErrNoBucket},
		{op: get, fault: f(304, ""), kind: store.ErrNotModified},
		{op: get, fault: f(416, "InvalidRange"), kind: store.ErrRange},
		{op: put, fault: f(401, ""), kind: store.ErrDenied, result: store.Rejected, hint: "s3:PutObject"},
		{op: put, fault: f(403, "AccessDenied"), kind: store.ErrDenied, result: store.Rejected, hint: "s3:ListBucket"},
		{op: get, fault: f(403, "InvalidAccessKeyId"), kind: store.ErrDenied, hint: "AWS_ACCESS_KEY_ID"},
		{op: get, fault: f(403, "SignatureDoesNotMatch"), kind: store.ErrDenied, hint: "AWS_SECRET_ACCESS_KEY"},
		{op: put, fault: f(400, "InvalidToken"), kind: store.ErrDenied, result: store.Rejected, hint: "AWS_SESSION_TOKEN"},
		{op: put, fault: f(400, "InvalidArgument"), kind: store.ErrInvalid, result: store.Rejected},
		{op: put, fault: f(400, "EntityTooLarge"), kind: store.ErrInvalid, result: store.Rejected},
		{op: put, fault: f(413, ""), kind: store.ErrInvalid, result: store.Rejected},
		{op: put, fault: f(400, "RequestTimeout")},
		{op: put, fault: f(400, "IncompleteBody")},
		{op: put, fault: f(400, "BadDigest")},
		{op: put, fault: f(400, "XAmzContentChecksumMismatch")},
		{op: put, fault: f(400, "NotImplemented"), kind: store.ErrUnsupported, result: store.Rejected},
		{op: put, cond: store.IfAbsent(), fault: f(501, "NotImplemented"), kind: store.ErrUnsupported, result: store.Rejected},
		{op: put, fault: f(405, "MethodNotAllowed"), kind: store.ErrUnsupported, result: store.Rejected},
		{op: put, fault: s3stub.Fault{Status: 503, Code: "SlowDown", RetryAfter: 7}},
		{op: get, fault: s3stub.Fault{Status: 429, Code: "TooManyRequests", RetryAfter: 2}},
		{op: list, fault: f(500, "InternalError")},
		{op: put, fault: f(500, "InternalError")},
		{op: put, fault: f(502, "")},
		{op: put, fault: f(504, "")},
		{op: put, fault: f(408, "")},
		{op: put, fault: f(418, "Teapot")},
		{op: del, fault: f(503, "SlowDown")},
		{op: many, fault: f(500, "InternalError")},
	})
}

// 409 is what S3 says when two conditional writes meet: one of them may have
// been this request.
func TestT07_ConflictIsUnknown(t *testing.T) {
	f := s3stub.Fault{Status: 409, Code: "ConditionalRequestConflict"}
	checkAnswers(t, []answer{
		{op: s3stub.PutObject, cond: store.IfAbsent(), fault: f, result: store.Unknown},
		{op: s3stub.PutObject, cond: match, fault: f, result: store.Unknown},
		{op: s3stub.PutObject, cond: match, fault: s3stub.Fault{Status: 409, Code: "OperationAborted"}, result: store.Unknown},
	})
}

// A match on a missing key is answered 404, with a code that the SDK has a type
// for on GET and not on PUT.
func TestT08_MatchOnMissingKeyIsRefused(t *testing.T) {
	checkAnswers(t, []answer{
		{op: s3stub.PutObject, cond: match, fault: s3stub.Fault{Status: 404, Code: "NoSuchKey"}, kind: store.ErrPrecondition, result: store.Refused},
		{op: s3stub.PutObject, cond: match, fault: s3stub.Fault{Status: 404}, kind: store.ErrPrecondition, result: store.Refused},
		{op: s3stub.PutObject, cond: match, fault: s3stub.Fault{Status: 404, Code: "NoSuchBucket"}, kind: store.ErrNoBucket, result: store.Rejected},
	})
	srv := start(t, nil)
	_, err := open(t, srv).Put(t.Context(), "nothing", []byte("x"), &store.PutOptions{If: store.IfMatch("0123456789abcdef0123456789abcdef")})
	if store.OutcomeOf(err) != store.Refused || asError(t, err).Status != http.StatusNotFound {
		t.Errorf("got %v, want a refusal with 404", err)
	}
}

// What a moment cures is no refusal of rights: a leader keeps its lead for as long as its lease, and a candidate waits.
//
// guard:passing-refusal. Without this: a machine is suspended for an hour and resumes. Its clock is an hour behind until the time
// service sets it. The store answers 403, RequestTimeTooSkewed, to the first request of a candidate, which ends.
func TestRefusalsThatPass(t *testing.T) {
	f := func(status int, code string) s3stub.Fault { return s3stub.Fault{Status: status, Code: code} }
	checkAnswers(t, []answer{
		{op: s3stub.GetObject, fault: f(403, "RequestTimeTooSkewed"), hint: "clock is wrong"},
		{op: s3stub.PutObject, cond: match, fault: f(403, "RequestTimeTooSkewed"), result: store.Unknown, hint: "clock is wrong"},
		{op: s3stub.PutObject, fault: f(403, "RequestExpired"), result: store.Unknown},
		{op: s3stub.GetObject, fault: f(400, "ExpiredToken"), hint: "expired"},
		{op: s3stub.PutObject, fault: f(400, "TokenRefreshRequired"), result: store.Unknown, hint: "expired"},
	})
}

func TestWrongRegion(t *testing.T) {
	srv := start(t, nil)
	srv.SetFault(s3stub.Every(s3stub.GetObject, s3stub.Fault{Status: 301, Code: "PermanentRedirect", Edit: func(h http.Header) {
		h.Set("X-Amz-Bucket-Region", "eu-central-1")
	}}))
	_, err := open(t, srv).Get(t.Context(), "k", nil)
	if e := asError(t, err); !errors.Is(err, store.ErrInvalid) || !strings.Contains(e.Hint, "region=eu-central-1") {
		t.Errorf("got %v", err)
	}
}

func TestConnectionRefused(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := "http://" + listener.Addr().String()
	listener.Close()
	st, err := store.Open(t.Context(), "s3://bucket?endpoint="+endpoint)
	if err != nil {
		t.Fatal(err)
	}
	_, err = st.Put(t.Context(), "k", []byte("x"), &store.PutOptions{If: store.IfAbsent()})
	e := asError(t, err)
	if e.Kind != nil || e.Status != 0 || !strings.Contains(e.Hint, endpoint) || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("got %v, want a hint that names %s", err, endpoint)
	}
}

func TestUntrustedCertificate(t *testing.T) {
	srv := start(t, &s3stub.Options{TLS: true})
	_, err := open(t, srv).Get(t.Context(), "k", nil)
	if e := asError(t, err); !strings.Contains(e.Hint, "AWS_CA_BUNDLE") {
		t.Errorf("got %v", err)
	}
	plain := start(t, nil)
	st, err := store.Open(t.Context(), strings.Replace(plain.StoreURL(), "http:", "https:", 1))
	if err != nil {
		t.Fatal(err)
	}
	_, err = st.Get(t.Context(), "k", nil)
	if e := asError(t, err); !strings.Contains(e.Hint, "endpoint=http://") {
		t.Errorf("got %v", err)
	}
}

func TestCancelled(t *testing.T) {
	srv := start(t, nil)
	st := open(t, srv)
	ops := []s3stub.Op{s3stub.PutObject, s3stub.GetObject, s3stub.ListObjectsV2, s3stub.DeleteObject, s3stub.DeleteObjects}
	for _, op := range ops {
		err := do(canceledContext(t), st, op, store.IfAbsent())
		if e := asError(t, err); e.Kind != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want context.Canceled of no kind", op, err)
		}
	}
	if n := srv.Counts().Total(); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
	for _, op := range ops {
		release := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		srv.SetFault(func(*s3stub.Request) *s3stub.Fault {
			cancel() // once the request is there
			return &s3stub.Fault{Wait: release}
		})
		err := do(ctx, st, op, store.IfAbsent())
		if e := asError(t, err); e.Kind != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want context.Canceled of no kind", op, err)
		}
		close(release)
	}
}

// An answer is an answer, also if only its head arrived. (RGW answers 412 while
// the body is still being sent, without a code.)
func TestStatusFirst_HeadOfAnAnswer(t *testing.T) {
	srv := start(t, nil)
	st := open(t, srv)
	srv.SetFault(s3stub.Every(s3stub.PutObject, s3stub.Fault{Status: 412, Code: "PreconditionFailed", Edit: func(h http.Header) {
		h.Set("Content-Length", "100000") // more than will come: the body breaks off
	}}))
	_, err := st.Put(t.Context(), "k", []byte("x"), &store.PutOptions{If: store.IfAbsent()})
	if store.OutcomeOf(err) != store.Refused {
		t.Errorf("got %v, want a refusal", err)
	}
}

// A server that answers and reads no more, while most of the body is not sent
// yet, and leaves the connection open.
func TestStatusFirst_AnswerWhileSending(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	done := make(chan struct{})
	serving.Go(func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n")
		<-done
	})
	defer serving.Wait()
	defer close(done)
	defer listener.Close()
	st, err := store.Open(t.Context(), "s3://bucket?endpoint=http://"+listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // only so that a failure ends
	defer cancel()
	_, err = st.Put(ctx, "k", make([]byte, 64<<20), &store.PutOptions{If: store.IfAbsent()})
	if store.OutcomeOf(err) != store.Refused || ctx.Err() != nil {
		t.Errorf("got %v, context: %v; want a refusal at once", err, ctx.Err())
	}
}

func TestEndlessAnswersAreCut(t *testing.T) {
	srv := start(t, nil)
	st := open(t, srv)
	srv.SetFault(s3stub.Every(s3stub.GetObject, s3stub.Fault{Status: 500, Code: strings.Repeat("x", 9<<20)}))
	_, err := st.Get(t.Context(), "k", nil)
	if e := asError(t, err); e.Status != 500 || len(err.Error()) > 8<<20+1000 {
		t.Errorf("an error of %d bytes", len(err.Error()))
	}
}

// guard:no-redirect. Without this: a load balancer sends requests to another node for three seconds. The client follows, and
// leaves the signature out. The node answers 403, and a leader that has every right gives up the lead.
func TestNoRedirectIsFollowed(t *testing.T) {
	cloudtest.Redirects(t, func(endpoint string) string { return "s3://bucket?endpoint=" + endpoint })
}
