//go:build unix && integration

package servers

import (
	"debug/buildinfo"
	"embed"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// TestInstalled installs missing servers, and checks that each has its pinned version.
// `make servers` runs it alone.
func TestInstalled(t *testing.T) {
	for _, k := range append(Clouds, All...) {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel() // one downloads while another compiles
			dir, err := k.Install(t.Context())
			if err != nil {
				unavailable(t, err)
			}
			if got := version(t, dir, k); got != k.Version {
				t.Errorf("version %s is installed, but %s is pinned", got, k.Version)
			}
		})
	}
}

func version(t *testing.T, dir string, k *Kind) string {
	t.Helper()
	if k != S3rver && k != Azurite {
		info, err := buildinfo.ReadFile(filepath.Join(dir, k.Name))
		if err != nil {
			t.Fatal(err)
		}
		return info.Main.Version
	}
	b, err := os.ReadFile(filepath.Join(dir, "node_modules", k.Name, "package.json"))
	if err != nil {
		t.Fatal(err)
	}
	var p struct{ Version string }
	if err := json.Unmarshal(b, &p); err != nil {
		t.Fatal(err)
	}
	return p.Version
}

// TestRealServers starts, kills and restarts each server, and checks whether an object
// remains. Of the clouds' emulators the tests of their drivers check that.
func TestRealServers(t *testing.T) {
	for _, k := range append(Clouds, All...) {
		t.Run(k.Name, func(t *testing.T) {
			s := Start(t, k)
			if k.api == nil {
				put(t, s, "k", "v")
				if got := get(t, s, "k"); got != "v" {
					t.Fatalf("read %q after writing %q", got, "v")
				}
			}
			for name, end := range map[string]func(){"Stop": s.Stop, "Kill": s.Kill} {
				end()
				if resp, err := http.Get(s.Endpoint); err == nil {
					resp.Body.Close()
					t.Fatalf("the server answers after %s", name)
				}
				s.Restart()
				want := ""
				if k.Durable {
					want = "v"
				}
				if k.api != nil {
					continue
				}
				if got := get(t, s, "k"); got != want {
					t.Errorf("read %q after %s and Restart, want %q", got, name, want)
				}
			}
		})
	}
}

func TestPinsAgree(t *testing.T) {
	for k, files := range map[*Kind]embed.FS{S3rver: s3rverFiles, Azurite: azuriteFiles} {
		b, err := files.ReadFile(k.Name + "/package.json")
		if err != nil {
			t.Fatal(err)
		}
		if want := `"` + k.Name + `": "` + k.Version + `"`; !strings.Contains(string(b), want) {
			t.Errorf("package.json does not pin %s", want)
		}
	}
}

func put(t *testing.T, s *Server, key, value string) {
	t.Helper()
	_, err := s.client().PutObject(t.Context(), &s3.PutObjectInput{
		Bucket: aws.String(s.Bucket), Key: aws.String(key), Body: strings.NewReader(value),
	})
	if err != nil {
		t.Fatal(err)
	}
}

// get returns the object under key, or "" if there is none.
func get(t *testing.T, s *Server, key string) string {
	t.Helper()
	out, err := s.client().GetObject(t.Context(), &s3.GetObjectInput{
		Bucket: aws.String(s.Bucket), Key: aws.String(key),
	})
	if errors.As(err, new(*types.NoSuchKey)) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	defer out.Body.Close()
	b, err := io.ReadAll(out.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
