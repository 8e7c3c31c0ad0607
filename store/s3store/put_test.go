package s3store_test

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fencepost/fencepost/internal/test/s3stub"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/s3store"
)

// client is an embedder's: with all the SDK's defaults, and more retries.
func client(t testing.TB, srv *s3stub.Server) *s3.Client {
	t.Helper()
	return s3.New(s3.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(srv.URL()), UsePathStyle: true, HTTPClient: srv.HTTPClient(),
		Credentials:                credentials.NewStaticCredentialsProvider("AKIDTEST", secret, ""),
		Retryer:                    retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts = 10 }),
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenSupported,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenSupported,
	})
}

func embedded(t testing.TB, srv *s3stub.Server, opts *s3store.Options) *s3store.Store {
	t.Helper()
	st, err := s3store.New(client(t, srv), "bucket", opts)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// An SDK that retries turns "applied, reply lost" into a 412 on one's own write.
func TestT05_NoRetryOfTheSDK(t *testing.T) {
	for name, open := range map[string]func(*s3stub.Server) store.Store{
		"Open": func(srv *s3stub.Server) store.Store { return open(t, srv) },
		"New":  func(srv *s3stub.Server) store.Store { return embedded(t, srv, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			srv := start(t, nil)
			st := open(srv)
			faults := map[string]s3stub.Fault{
				"lost before": {Drop: true}, "lost after": s3stub.Lost, "500": {Status: 500, Code: "InternalError"},
				"503": {Status: 503, Code: "SlowDown"}, "409": {Status: 409, Code: "ConditionalRequestConflict"},
			}
			for what, fault := range faults {
				for _, op := range []s3stub.Op{s3stub.PutObject, s3stub.DeleteObject, s3stub.DeleteObjects, s3stub.ListObjectsV2} {
					if op == s3stub.ListObjectsV2 && fault.Drop {
						continue // net/http sends a read again on another connection
					}
					srv.Reset()
					srv.SetFault(s3stub.Nth(op, 1, fault))
					err := do(t.Context(), st, op, store.IfAbsent())
					if n := srv.Counts().Total(); n != 1 {
						t.Errorf("%s, %s: %d requests, want 1", op, what, n)
					}
					if store.OutcomeOf(err) != store.Unknown {
						t.Errorf("%s, %s: got %v, want unknown", op, what, err)
					}
					srv.SetFault(nil)
					if err := st.Delete(t.Context(), "k"); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

// The SDK sends no checksum from a bare configuration and a trailer from a full
// one. Here it is one header, whatever the client's configuration, and over
// https the payload is not hashed a second time.
func TestT32_Checksums(t *testing.T) {
	const body = "the body"
	right := crc32.Checksum([]byte(body), crc32.MakeTable(crc32.Castagnoli))
	sum := base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, right))
	for mode, want := range map[s3store.Checksum][2]string{
		"":                 {"X-Amz-Checksum-Crc32c", sum},
		s3store.CRC32C:     {"X-Amz-Checksum-Crc32c", sum},
		s3store.NoChecksum: {},
	} {
		for _, tls := range []bool{false, true} {
			for _, upload := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s tls=%v upload=%v", mode, tls, upload), func(t *testing.T) {
					srv := start(t, &s3stub.Options{TLS: tls})
					st := embedded(t, srv, &s3store.Options{Checksum: mode})
					var h http.Header
					srv.SetFault(func(r *s3stub.Request) *s3stub.Fault { h = r.HTTP.Header.Clone(); return nil })
					if upload {
						if _, err := st.Upload(t.Context(), "k", strings.NewReader(body), nil); err != nil {
							t.Fatal(err)
						}
					} else {
						put(t, st, "k", body, store.IfAbsent())
					}
					for name, v := range h {
						if strings.HasPrefix(name, "X-Amz-Checksum") && (name != want[0] || v[0] != want[1]) {
							t.Errorf("header %s: %s", name, v)
						}
						if name == "X-Amz-Trailer" || name == "Expect" || name == "X-Amz-Sdk-Checksum-Algorithm" {
							t.Errorf("header %s: %s", name, v)
						}
					}
					if want[0] != "" && h.Get(want[0]) == "" {
						t.Errorf("no header %s", want[0])
					}
					if unsigned := h.Get("X-Amz-Content-Sha256") == "UNSIGNED-PAYLOAD"; unsigned != tls {
						t.Errorf("X-Amz-Content-Sha256: %s", h.Get("X-Amz-Content-Sha256"))
					}
				})
			}
		}
	}
	t.Run("wrong", func(t *testing.T) {
		// The stub does look: a body that changes on the way is turned away.
		srv := start(t, nil)
		srv.SetFault(func(r *s3stub.Request) *s3stub.Fault {
			r.HTTP.Header.Set("X-Amz-Checksum-Crc32c", "AAAAAA==")
			return nil
		})
		_, err := open(t, srv).Put(t.Context(), "k", []byte(body), &store.PutOptions{If: store.IfAbsent()})
		if e := asError(t, err); e.Code != "BadDigest" || store.OutcomeOf(err) != store.Unknown {
			t.Errorf("got %v", err)
		}
	})
	t.Run("known", func(t *testing.T) {
		// Who knows the checksum of what is put tells it, and it is sent as it is: the stub
		// looks. It is not taken for another checksum.
		for _, mode := range []s3store.Checksum{s3store.CRC32C, s3store.NoChecksum} {
			srv := start(t, nil)
			st := embedded(t, srv, &s3store.Options{Checksum: mode})
			for key, crc := range map[string]uint32{"right": right, "wrong": right + 1} {
				_, err := st.Put(t.Context(), key, []byte(body), &store.PutOptions{If: store.IfAbsent(), CRC32C: &crc})
				if refused := key == "wrong" && mode == s3store.CRC32C; refused != (err != nil) {
					t.Errorf("%s, %s: %v", mode, key, err)
				}
			}
		}
	})
	t.Run("get", func(t *testing.T) {
		srv := start(t, nil)
		st := embedded(t, srv, nil)
		put(t, st, "k", body, store.IfAbsent())
		mode := headers(srv, s3stub.GetObject, "X-Amz-Checksum-Mode")
		get(t, st, "k", nil)
		if m := mode(); !slices.Equal(m, []string{""}) {
			t.Errorf("checksum mode %q", m)
		}
	})
}

// The version of one state is the same wherever it is read, and its quotes are
// put back as the store wants them.
func TestT14_Quotes(t *testing.T) {
	quotes := map[string]func(http.Header){
		"as S3":           nil,
		"PUT leaves out":  func(h http.Header) { h.Set("Etag", strings.Trim(h.Get("Etag"), `"`)) },
		"with whitespace": func(h http.Header) { h.Set("Etag", " "+h.Get("Etag")+" ") },
	}
	for name, edit := range quotes {
		t.Run(name, func(t *testing.T) {
			srv := start(t, &s3stub.Options{ListUnquoted: edit == nil})
			st := open(t, srv)
			srv.SetFault(s3stub.Every(s3stub.PutObject, s3stub.Fault{Edit: edit}))
			info := put(t, st, "k", "one", store.IfAbsent())
			_, got := get(t, st, "k", nil)
			for listed, err := range st.List(t.Context(), "", nil) {
				if err != nil || listed.Version != info.Version {
					t.Errorf("listed with %q, %v; written with %q", listed.Version, err, info.Version)
				}
			}
			if got.Version != info.Version {
				t.Errorf("read with %q, written with %q", got.Version, info.Version)
			}
			put(t, st, "k", "two", store.IfMatch(got.Version))
			if _, err := st.Put(t.Context(), "k", []byte("three"), &store.PutOptions{If: store.IfMatch(info.Version)}); store.OutcomeOf(err) != store.Refused {
				t.Errorf("stale: got %v", err)
			}
		})
	}
	t.Run("unquoted", func(t *testing.T) {
		srv := start(t, &s3stub.Options{UnquotedMatch: true})
		info := put(t, open(t, srv), "k", "one", store.IfAbsent())
		if _, err := open(t, srv).Put(t.Context(), "k", []byte("two"), &store.PutOptions{If: store.IfMatch(info.Version)}); store.OutcomeOf(err) != store.Refused {
			t.Fatalf("the stub takes quotes: %v", err)
		}
		info = put(t, open(t, srv, "etag=unquoted"), "k", "two", store.IfMatch(info.Version))
		sent := headers(srv, s3stub.PutObject, "If-Match")
		put(t, open(t, srv, "etag=unquoted"), "k", "three", store.IfMatch(info.Version))
		if h := sent(); !slices.Equal(h, []string{string(info.Version)}) {
			t.Errorf("sent %q", h)
		}
	})
}

// A version that no header can carry is none of this store's.
func TestVersionsOfOthers(t *testing.T) {
	srv := start(t, nil)
	st := open(t, srv)
	put(t, st, "k", "x", store.IfAbsent())
	srv.Reset()
	for _, v := range []store.Version{"", "a\nb", "a b", `a"b`, "é", "\x00"} {
		_, err := st.Put(t.Context(), "k", []byte("y"), &store.PutOptions{If: store.IfMatch(v)})
		if store.OutcomeOf(err) != store.Refused {
			t.Errorf("%q: got %v, want a refusal", v, err)
		}
	}
	if n := srv.Counts().Total(); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
	if body, _ := get(t, st, "k", &store.GetOptions{IfNoneMatch: "a b"}); body != "x" {
		t.Errorf("read %q", body)
	}
}

func TestNoETag(t *testing.T) {
	srv := start(t, nil)
	st := open(t, srv)
	strip := s3stub.Fault{Edit: func(h http.Header) { h.Del("Etag") }}
	srv.SetFault(s3stub.Every(s3stub.PutObject, strip))
	if _, err := st.Put(t.Context(), "k", []byte("x"), &store.PutOptions{If: store.IfAbsent()}); store.OutcomeOf(err) != store.Unknown {
		t.Errorf("Put: got %v, want unknown", err)
	}
	if info, err := store.Create(t.Context(), st, "l", []byte("x"), nil); err != nil || info.Version == "" {
		t.Errorf("Create: got %v, %v", info, err)
	}
	srv.SetFault(s3stub.Every(s3stub.GetObject, strip))
	if _, err := st.Get(t.Context(), "k", nil); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("Get: got %v", err)
	}
}

// A request that was answered early or abandoned must not go on reading memory
// that is its caller's again: the race detector watches.
func TestBodyIsNotKept(t *testing.T) {
	srv := start(t, nil)
	st := open(t, srv, "checksum=none")
	body := make([]byte, 8<<20)
	srv.SetFault(s3stub.Every(s3stub.PutObject, s3stub.Fault{Status: 412, Early: true}))
	for i := range 5 {
		if _, err := st.Put(t.Context(), "k", body, &store.PutOptions{If: store.IfAbsent()}); err == nil {
			t.Fatal("the fault is not effective")
		}
		for j := 0; j < len(body); j += 256 {
			body[j] = byte(i)
		}
	}
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		srv.SetFault(func(*s3stub.Request) *s3stub.Fault { go cancel(); return nil })
		_, _ = st.Put(ctx, "k", body, nil)
		cancel()
		clear(body)
	}
}

// Waiting for "100 Continue" would cost each large body a round trip.
func TestNoExpectContinue(t *testing.T) {
	srv := start(t, nil)
	st := embedded(t, srv, nil)
	sent := headers(srv, s3stub.PutObject, "Expect")
	put(t, st, "k", string(make([]byte, 3<<20)), store.IfAbsent())
	if h := sent(); !slices.Equal(h, []string{""}) {
		t.Errorf("Expect: %q", h)
	}
}

func TestConcurrentPutsKeepConnections(t *testing.T) {
	srv := start(t, nil)
	st := open(t, srv)
	var mu sync.Mutex
	remotes := map[string]bool{}
	srv.SetFault(func(r *s3stub.Request) *s3stub.Fault {
		mu.Lock()
		defer mu.Unlock()
		remotes[r.HTTP.RemoteAddr] = true
		return nil
	})
	const workers, rounds = 64, 5
	for round := range rounds {
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				if _, err := st.Put(t.Context(), fmt.Sprintf("%d/%d", round, w), []byte("x"), &store.PutOptions{If: store.IfAbsent()}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	// With the SDK's ten idle connections it would be nearly one for each PUT.
	if len(remotes) > workers*2 {
		t.Errorf("%d connections for %d workers", len(remotes), workers)
	}
}
