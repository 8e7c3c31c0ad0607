package main

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fencepost/fencepost/internal/test/s3stub"
)

// shapes counts the requests that put more than some bytes, by what they look like.
type shapes struct {
	least int64
	next  interface {
		Do(req *http.Request) (*http.Response, error)
	}
	mu   sync.Mutex
	seen map[string]int
}

func (s *shapes) Do(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodPut && req.ContentLength > s.least {
		var look []string
		for _, name := range slices.Sorted(maps.Keys(req.Header)) {
			switch name {
			case "User-Agent": // not compared: one letter in it says whether the SDK or its caller has computed the checksum
			case "Amz-Sdk-Invocation-Id", "Authorization", "X-Amz-Checksum-Crc32c", "X-Amz-Content-Sha256", "X-Amz-Date":
				look = append(look, name) // of its own in each request
			default:
				look = append(look, name+"="+req.Header.Get(name))
			}
		}
		s.mu.Lock()
		s.seen[fmt.Sprintf("%d KiB, %d folders, %s", req.ContentLength>>10, strings.Count(req.URL.Path, "/"), strings.Join(look, " "))]++
		s.mu.Unlock()
	}
	return s.next.Do(req)
}

// TestArmsAreEqual: a server cannot tell an append from what it is compared with, and both send as
// many requests.
func TestArmsAreEqual(t *testing.T) {
	const size, n, depth = 64 << 10, 40, 4
	srv := s3stub.Start(nil)
	defer srv.Close()
	look := func(run func(e *endpoint) error) map[string]int {
		s := &shapes{least: size, next: srv.HTTPClient(), seen: map[string]int{}}
		e, err := newClient(s3.Options{BaseEndpoint: aws.String(srv.URL()), HTTPClient: s, Credentials: credentials.NewStaticCredentialsProvider("AK", "SK", "")}, bucket)
		if err == nil {
			err = run(e)
		}
		if err != nil {
			t.Fatal(err)
		}
		return s.seen
	}
	appends := look(func(e *endpoint) error {
		w, err := e.open(t.Context(), pipeline(depth, size))
		if err != nil {
			return err
		}
		return errors.Join(appendSome(t.Context(), w, size, n), w.Close(t.Context()))
	})
	least := look(func(e *endpoint) error {
		return (&numbered{endpoint: e, prefix: "log-x"}).write(t.Context(), size, n, depth)
	})
	if !maps.Equal(appends, least) {
		t.Errorf("appends look like\n%v\nand what they are compared with like\n%v", appends, least)
	}
}
