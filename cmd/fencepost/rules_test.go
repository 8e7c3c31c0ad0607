package main

import (
	"strings"
	"testing"

	"github.com/fencepost/fencepost/internal/test/s3stub"
)

// T36: who makes a log in a bucket that deletes old objects is warned, and the log
// is not in order.
func TestT36_BucketWithARule(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	srv := s3stub.Start(&s3stub.Options{Lifecycle: `<Rule><ID>tidy</ID><Status>Enabled</Status><Filter></Filter><Expiration><Days>30</Days></Expiration></Rule>`})
	t.Cleanup(srv.Close)
	bucket, params, _ := strings.Cut(srv.StoreURL(), "?")
	url := bucket + "/logs?" + params
	for _, verb := range []string{"probe", "init"} {
		if r := run(t, "", verb, url); r.status != 0 || !strings.Contains(r.err, `rule "tidy" deletes objects after 30 days`) {
			t.Errorf("%s: status %d, %s%s", verb, r.status, r.out, r.err)
		}
	}
	if r := run(t, "", "verify", url); r.status != 65 || !strings.Contains(r.out, `problem: the bucket's lifecycle rule "tidy"`) {
		t.Errorf("verify: status %d, %s%s", r.status, r.out, r.err)
	}
}
