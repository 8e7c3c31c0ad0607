package s3store_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/store"
)

// Those who give out credentials answer without an end: STS, SSO, a container's service and a machine's metadata, with success or with an error.
// A request fails, and nobody runs out of memory.
//
// guard:bounded-answer. Without this limit: a broken server, or a proxy before it, answers a listing or a question for
// credentials with an endless body; the SDK reads it into memory until the process is killed.
func TestEndlessCredentials(t *testing.T) {
	if !test.InChild(t, 2<<30) {
		return
	}
	write := func(name, content string) string {
		t.Helper()
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "false")
	for _, status := range []int{200, 400} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/box") {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "600")
			w.WriteHeader(status)
			begin := `{"Code":"Success","AccessKeyId":"`
			if r.Method == http.MethodPost {
				begin = "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>"
			}
			_, err := w.Write([]byte(begin))
			for block := bytes.Repeat([]byte("x"), 1<<20); err == nil; {
				_, err = w.Write(block)
			}
		}))
		for name, env := range map[string]map[string]string{
			"container": {"AWS_CONTAINER_CREDENTIALS_FULL_URI": srv.URL + "/credentials"},
			"machine":   {"AWS_EC2_METADATA_SERVICE_ENDPOINT": srv.URL},
			"STS": {
				"AWS_ENDPOINT_URL_STS": srv.URL, "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/x", "AWS_WEB_IDENTITY_TOKEN_FILE": write("token", "token"),
			},
		} {
			t.Run(fmt.Sprint(name, status), func(t *testing.T) {
				empty := write("config", "")
				for _, name := range []string{"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"} {
					t.Setenv(name, empty)
				}
				for name, value := range env {
					t.Setenv(name, value)
				}
				st, err := store.Open(t.Context(), "s3://box?region=eu-west-1&endpoint="+srv.URL)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				took := test.Allocated(func() { _, err = st.Get(ctx, "k", nil) })
				if err == nil || ctx.Err() != nil || took > 64<<20 {
					t.Errorf("%v; it took %d bytes", err, took)
				}
				t.Log(took, err)
			})
		}
		srv.Close()
	}
}
