//go:build apiserver

package kubelock_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/fencepost/fencepost/fence"
)

// cluster is a kube-apiserver and its etcd, of which make apiserver builds the programs. There are
// no nodes and no controllers.
type cluster struct {
	*testing.T
	dir, programs string
	etcd, port    string
	api           *program
	client        *coordinationv1client.CoordinationV1Client

	mu       sync.Mutex
	warnings []string
}

// program is a server that runs; ended is closed when it does not any more.
type program struct {
	*os.Process
	ended chan struct{}
}

// HandleWarningHeader notes what the API server warns of.
func (c *cluster) HandleWarningHeader(_ int, _, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.warnings = append(c.warnings, text)
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{T: t, dir: t.TempDir(), programs: os.Getenv("FENCEPOST_APISERVER"), port: port(t)}
	if c.programs == "" {
		t.Fatal("FENCEPOST_APISERVER names no folder with kube-apiserver and etcd: run make apiserver")
	}
	peers := "http://127.0.0.1:" + port(t)
	c.etcd = "http://127.0.0.1:" + port(t)
	c.start("etcd", "--data-dir", filepath.Join(c.dir, "etcd"), "--listen-client-urls", c.etcd, "--advertise-client-urls", c.etcd,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default="+peers)
	c.file("tokens", []byte("secret,test,1,system:masters\n"))
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	c.file("key", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
	c.client, err = coordinationv1client.NewForConfig(&rest.Config{
		Host: "https://127.0.0.1:" + c.port, BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{Insecure: true}, WarningHandler: c,
	})
	if err != nil {
		t.Fatal(err)
	}
	c.serve()
	return c
}

func (c *cluster) file(name string, b []byte) {
	c.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, name), b, 0o600); err != nil {
		c.Fatal(err)
	}
}

// port returns a free port. Another process may take it first; then the server ends, and says so.
func port(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, p, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// start runs a program until the test ends. Its output is shown if the test fails.
func (c *cluster) start(name string, args ...string) *program {
	c.Helper()
	var out bytes.Buffer
	cmd := exec.Command(filepath.Join(c.programs, name), args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		c.Fatal(err)
	}
	p := &program{cmd.Process, make(chan struct{})}
	go func() {
		defer close(p.ended)
		_ = cmd.Wait()
	}()
	c.Cleanup(func() {
		p.end()
		if c.Failed() {
			c.Logf("%s:\n%s", name, out.Bytes()[max(0, out.Len()-4000):])
		}
	})
	return p
}

// end kills the program, if it still runs.
func (p *program) end() {
	_ = p.Kill()
	<-p.ended
}

// serve starts the API server and waits until it is ready.
func (c *cluster) serve() {
	c.Helper()
	key := filepath.Join(c.dir, "key")
	c.api = c.start("kube-apiserver", "--etcd-servers", c.etcd, "--bind-address", "127.0.0.1",
		"--endpoint-reconciler-type", "none", "--secure-port", c.port,
		"--cert-dir", filepath.Join(c.dir, "certificates"), "--token-auth-file", filepath.Join(c.dir, "tokens"), "--authorization-mode", "RBAC",
		"--service-cluster-ip-range", "10.0.0.0/24", "--service-account-issuer", "https://test.invalid",
		"--service-account-key-file", key, "--service-account-signing-key-file", key)
	for late := time.Now().Add(3 * time.Minute); ; time.Sleep(250 * time.Millisecond) {
		err := c.client.RESTClient().Get().AbsPath("/readyz").Do(c.Context()).Error()
		if err == nil {
			return
		}
		select {
		case <-c.api.ended:
			c.Fatal("the API server ended")
		default:
		}
		if time.Now().After(late) {
			c.Fatalf("the API server is never ready: %v", err)
		}
	}
}

// post creates an object, or with dry only checks it as if it were created.
func (c *cluster) post(path string, object any, dry bool) error {
	c.Helper()
	b, err := yaml.Marshal(object)
	if raw, ok := object.([]byte); ok {
		b, err = raw, nil
	}
	if err == nil {
		b, err = yaml.YAMLToJSON(b)
	}
	if err != nil {
		c.Fatal(err)
	}
	r := c.client.RESTClient().Post().AbsPath(path).SetHeader("Content-Type", "application/json").Param("fieldValidation", "Strict").Body(b)
	if dry {
		r = r.Param("dryRun", "All")
	}
	return r.Do(c.Context()).Error()
}

// where an object of the manifests is created.
func where(meta metav1.TypeMeta) string {
	root := "/apis/" + meta.APIVersion
	if meta.APIVersion == "v1" {
		root = "/api/v1"
	}
	return fmt.Sprintf("%s/namespaces/ns/%ss", root, strings.ToLower(meta.Kind))
}

// TestAPIServer tries what the other tests try on client-go's fake.
func TestAPIServer(t *testing.T) {
	c := newCluster(t)
	// Pods that have rights which they do not need are refused in this namespace.
	ns := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted"}}}
	if err := c.post("/api/v1/namespaces", ns, false); err != nil {
		t.Fatal(err)
	}
	t.Run("manifests", func(t *testing.T) { c.manifests(t) })
	t.Run("tokens", func(t *testing.T) {
		before := tokensRise(t, c.client, fence.Token{})
		c.api.end()
		c.serve()
		tokensRise(t, c.client, before)
	})
}

// manifests sends those of deploy/kubernetes, and the pods that they would make.
func (c *cluster) manifests(t *testing.T) {
	files, err := filepath.Glob("../../deploy/kubernetes/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	sent, pods := 0, 0
	each := func(file string, do func(metav1.TypeMeta, []byte)) {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for doc := range bytes.SplitSeq(b, []byte("\n---\n")) {
			var meta metav1.TypeMeta
			if err := yaml.Unmarshal(doc, &meta); err != nil {
				t.Fatal(err)
			}
			do(meta, doc)
		}
	}
	for _, file := range files { // pods need their account
		each(file, func(meta metav1.TypeMeta, doc []byte) {
			if meta.Kind == "ServiceAccount" {
				if err := c.post(where(meta), doc, false); err != nil {
					t.Errorf("%s: %v", file, err)
				}
				sent++
			}
		})
	}
	for _, file := range files {
		each(file, func(meta metav1.TypeMeta, doc []byte) {
			if meta.Kind == "ServiceAccount" {
				return
			}
			if err := c.post(where(meta), doc, true); err != nil {
				t.Errorf("%s: %v", file, err)
			}
			sent++
			if meta.Kind != "Deployment" {
				return
			}
			var d appsv1.Deployment
			if err := yaml.Unmarshal(doc, &d); err != nil {
				t.Fatal(err)
			}
			pod := corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: d.Spec.Template.ObjectMeta, Spec: d.Spec.Template.Spec}
			pod.Name = d.Name
			if err := c.post(where(pod.TypeMeta), pod, true); err != nil {
				t.Errorf("%s: a pod of it: %v", file, err)
			}
			pods++
			pod.Spec.Containers[0].SecurityContext = nil
			if err := c.post(where(pod.TypeMeta), pod, true); err == nil {
				t.Errorf("%s: a pod with all rights is accepted", file)
			}
		})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.warnings) > 0 {
		t.Errorf("the API server warns: %q", c.warnings)
	}
	each("testdata/wrong.yaml", func(meta metav1.TypeMeta, doc []byte) {
		if err := c.post(where(meta), doc, true); err == nil {
			t.Errorf("a wrong %s is accepted", meta.Kind)
		}
	})
	if sent < 9 || pods != 3 {
		t.Errorf("%d objects and %d pods", sent, pods)
	}
}

var _ rest.WarningHandler = (*cluster)(nil)
