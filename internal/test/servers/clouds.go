//go:build unix

package servers

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// api is how clients reach a server that does not speak S3.
type api struct {
	// env has environment variables for the cloud's SDK.
	env [][2]string
	// bucket returns a request that creates the bucket.
	bucket func(s *Server) (*http.Request, error)
	// url returns the URL of a prefix, as store.Open takes it.
	url func(s *Server, prefix string) url.URL
}

// FakeGCS emulates Google Cloud Storage in memory. It ignores generation conditions on
// GET and DELETE.
var FakeGCS = &Kind{
	Name:    "fake-gcs-server",
	Version: "v1.56.1",
	install: goInstall("github.com/fsouza/fake-gcs-server"),
	command: func(dir, _, addr string) (argv, env []string) {
		host, port := splitAddr(addr)
		return []string{
			filepath.Join(dir, "fake-gcs-server"), "-scheme", "http", "-host", host, "-port", port,
			"-backend", "memory", "-log-level", "error",
		}, nil
	},
	api: &api{
		env: [][2]string{
			// The developer's own settings must not affect a test.
			{"GOOGLE_APPLICATION_CREDENTIALS", os.DevNull},
			{"STORAGE_EMULATOR_HOST", ""},
		},
		bucket: func(s *Server) (*http.Request, error) {
			body := strings.NewReader(fmt.Sprintf(`{"name": %q}`, s.Bucket))
			return http.NewRequest(http.MethodPost, s.Endpoint+"/storage/v1/b?project=test", body)
		},
		url: func(s *Server, prefix string) url.URL {
			return url.URL{Scheme: "gs", Host: s.Bucket, Path: "/" + prefix, RawQuery: url.Values{"endpoint": {s.Endpoint}}.Encode()}
		},
	},
}

// Azurite emulates Azure Blob Storage. Like Azure, it answers a create of an existing
// blob with 409. It loses most data when it is killed.
var Azurite = &Kind{
	Name:    "azurite",
	Version: "3.37.0",
	install: npmInstall(azuriteFiles, "azurite"),
	command: func(dir, data, addr string) (argv, env []string) {
		host, port := splitAddr(addr)
		return []string{
				"node", filepath.Join(dir, "node_modules", "azurite", "dist", "src", "blob", "main.js"),
				"--blobHost", host, "--blobPort", port, "--location", data,
				"--silent", "--disableTelemetry",
				// The SDK's protocol version is newer than those that Azurite knows.
				"--skipApiVersionCheck",
			}, []string{
				"AZURITE_ACCOUNTS=" + access + ":" + azuriteKey,
			}
	},
	access: access, secret: azuriteKey,
	api: &api{
		env: [][2]string{
			{"AZURE_STORAGE_ACCOUNT", access},
			{"AZURE_STORAGE_KEY", azuriteKey},
			{"AZURE_STORAGE_SAS_TOKEN", ""},
			{"AZURE_STORAGE_CONNECTION_STRING", ""},
		},
		bucket: createContainer,
		url: func(s *Server, prefix string) url.URL {
			return url.URL{Scheme: "az", Host: s.Bucket, Path: "/" + prefix, RawQuery: url.Values{"endpoint": {s.Endpoint + "/" + access}}.Encode()}
		},
	},
}

// Clouds are the emulators of the clouds that do not speak S3.
var Clouds = []*Kind{FakeGCS, Azurite}

var azuriteKey = base64.StdEncoding.EncodeToString([]byte(secret))

// createContainer signs with the account's key by hand, so that this module does not
// depend on Azure's SDK.
func createContainer(s *Server) (*http.Request, error) {
	r, err := http.NewRequest(http.MethodPut, s.Endpoint+"/"+access+"/"+s.Bucket+"?restype=container", http.NoBody)
	if err != nil {
		return nil, err
	}
	date := time.Now().UTC().Format(http.TimeFormat)
	const version = "2021-12-02"
	r.Header.Set("x-ms-date", date)
	r.Header.Set("x-ms-version", version)
	mac := hmac.New(sha256.New, []byte(secret))
	// Sign the verb, eleven empty headers, the x-ms- headers and the resource. The
	// account occurs twice: once by itself, and once in the path of an emulator.
	fmt.Fprintf(mac, "PUT%sx-ms-date:%s\nx-ms-version:%s\n/%s/%s/%s\nrestype:container",
		strings.Repeat("\n", 12), date, version, access, access, s.Bucket)
	r.Header.Set("Authorization", "SharedKey "+access+":"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return r, nil
}

// ensureBucket tries once to create the bucket. It succeeds if the bucket exists already.
func (a *api) ensureBucket(ctx context.Context, s *Server) error {
	r, err := a.bucket(s)
	if err != nil {
		return err
	}
	resp, err := impatient.Do(r.WithContext(ctx))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 == 2 || resp.StatusCode == http.StatusConflict {
		return nil
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // only for the error
	return fmt.Errorf("create bucket %s: %s: %s", s.Bucket, resp.Status, text)
}

// The lock file also pins azurite's dependencies.
//
//go:embed azurite/package.json azurite/package-lock.json
var azuriteFiles embed.FS
