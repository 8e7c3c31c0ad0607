package kubelock_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// manifests are those of deploy/kubernetes. Reading them wants each member to exist in the API's
// own types, and each value to have the member's type. make manifests checks them against the
// API's schemas as well.
type manifests struct {
	deployments []*appsv1.Deployment
	budgets     []*policyv1.PodDisruptionBudget
	services    []*corev1.Service
	accounts    map[string]bool
}

func readManifests(t *testing.T) *manifests {
	t.Helper()
	files, err := filepath.Glob("../../deploy/kubernetes/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	m := &manifests{accounts: map[string]bool{}}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for doc := range bytes.SplitSeq(b, []byte("\n---\n")) {
			var meta metav1.TypeMeta
			if err := yaml.Unmarshal(doc, &meta); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			var v any
			switch meta.APIVersion + " " + meta.Kind {
			case "apps/v1 Deployment":
				m.deployments = append(m.deployments, &appsv1.Deployment{})
				v = m.deployments[len(m.deployments)-1]
			case "policy/v1 PodDisruptionBudget":
				m.budgets = append(m.budgets, &policyv1.PodDisruptionBudget{})
				v = m.budgets[len(m.budgets)-1]
			case "v1 Service":
				m.services = append(m.services, &corev1.Service{})
				v = m.services[len(m.services)-1]
			case "v1 ServiceAccount":
				v = &corev1.ServiceAccount{}
			default:
				t.Fatalf("%s has a %q of %q", file, meta.Kind, meta.APIVersion)
			}
			if err := yaml.UnmarshalStrict(doc, v); err != nil {
				t.Errorf("%s: %v", file, err)
			}
			if a, ok := v.(*corev1.ServiceAccount); ok {
				m.accounts[a.Name] = true
			}
		}
	}
	return m
}

func TestManifests(t *testing.T) {
	m := readManifests(t)
	if len(m.deployments) != 4 || len(m.budgets) != 3 || len(m.services) != 1 {
		t.Fatalf("%d deployments, %d budgets, %d services", len(m.deployments), len(m.budgets), len(m.services))
	}
	pods := map[string]*appsv1.Deployment{}
	for _, d := range m.deployments {
		t.Run(d.Name, func(t *testing.T) { checkDeployment(t, d, m.accounts) })
		pods[d.Name] = d
	}
	for _, b := range m.budgets {
		d := pods[b.Name]
		if d == nil || !matches(t, b.Spec.Selector, d) {
			t.Errorf("the budget %s selects no pods", b.Name)
			continue
		}
		if free := int(*d.Spec.Replicas) - b.Spec.MinAvailable.IntValue(); free < 1 {
			t.Errorf("the budget %s lets no node be drained", b.Name)
		}
	}
	for _, d := range m.deployments {
		if *d.Spec.Replicas > 1 && !slices.ContainsFunc(m.budgets, func(b *policyv1.PodDisruptionBudget) bool { return b.Name == d.Name }) {
			t.Errorf("%s has no budget", d.Name)
		}
	}
	for _, s := range m.services {
		d := pods[s.Name]
		if d == nil || !matches(t, &metav1.LabelSelector{MatchLabels: s.Spec.Selector}, d) {
			t.Errorf("the service %s selects no pods", s.Name)
		} else if port := s.Spec.Ports[0].TargetPort.StrVal; d.Spec.Template.Spec.Containers[0].Ports[0].Name != port {
			t.Errorf("the service %s has no port %q", s.Name, port)
		}
	}
}

func matches(t *testing.T, s *metav1.LabelSelector, d *appsv1.Deployment) bool {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	return !selector.Empty() && selector.Matches(labels.Set(d.Spec.Template.Labels))
}

func checkDeployment(t *testing.T, d *appsv1.Deployment, accounts map[string]bool) {
	pod := d.Spec.Template.Spec
	if !matches(t, d.Spec.Selector, d) {
		t.Error("it does not select its own pods")
	}
	if !accounts[pod.ServiceAccountName] || ptr.Deref(pod.AutomountServiceAccountToken, true) {
		t.Errorf("the service account is %q", pod.ServiceAccountName)
	}
	if s := pod.SecurityContext; s == nil || !ptr.Deref(s.RunAsNonRoot, false) || ptr.Deref(s.RunAsUser, 0) == 0 || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Error("the pod may be root, or has no seccomp profile")
	}
	for _, s := range pod.TopologySpreadConstraints {
		if !matches(t, s.LabelSelector, d) {
			t.Error("the pods are not spread")
		}
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		if s := c.SecurityContext; s == nil || !ptr.Deref(s.ReadOnlyRootFilesystem, false) || ptr.Deref(s.AllowPrivilegeEscalation, true) || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			t.Errorf("container %s is not confined", c.Name)
		}
		if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() || !c.Resources.Limits.Cpu().IsZero() {
			t.Errorf("container %s wants a limit of memory, a request of the processor, and no limit of that", c.Name)
		}
		if !strings.HasPrefix(c.Image, "fencepost") {
			continue // the program beside the agent
		}
		verb := checkCommand(t, c)
		// What a leader may take to hand over: docs/operations.md. A command of exec gets more.
		want := map[string]time.Duration{"exec": 25 * time.Second, "agent": 30 * time.Second, "compact": 25 * time.Second, "exporter": time.Second}[verb]
		if got := time.Duration(ptr.Deref(pod.TerminationGracePeriodSeconds, 30)) * time.Second; got <= want {
			t.Errorf("%s is killed after %v, and may take %v", verb, got, want)
		}
		if verb == "exec" {
			continue // it has no --listen
		}
		for what, probe := range map[string]*corev1.Probe{"/healthz": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
			if verb == "agent" && what == "/readyz" {
				continue // the program waits for the socket
			}
			if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != what || probe.HTTPGet.Port.StrVal != c.Ports[0].Name {
				t.Errorf("the probe of %s is %v", what, probe)
			}
		}
		flag := "--listen"
		if verb == "agent" {
			flag = "--metrics"
		}
		if i := slices.Index(c.Args, flag); i < 0 || c.Args[i+1] != ":9464" || c.Ports[0].ContainerPort != 9464 {
			t.Errorf("the container listens elsewhere than at its port: %q", c.Args)
		}
	}
}

// checkCommand wants the verb and its flags to be in the help of the command line, and returns
// the verb.
func checkCommand(t *testing.T, c corev1.Container) string {
	t.Helper()
	args := c.Args
	if len(c.Command) > 0 {
		args = c.Command[1:]
	}
	help, err := os.ReadFile("../../cmd/fencepost/testdata/help.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(help), "\n$ fencepost help "+args[0]+"\n")
	if !ok {
		t.Fatalf("there is no verb %q", args[0])
	}
	text, _, _ = strings.Cut(text, "\n$ ")
	flags := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^ +(?:-\w, )?(--[a-z-]+)`).FindAllStringSubmatch(text, -1) {
		flags[m[1]] = true
	}
	for _, arg := range args[1:] {
		if arg == "--" {
			break
		}
		if strings.HasPrefix(arg, "--") && !flags[arg] {
			t.Errorf("%s has no flag %s, but %v", args[0], arg, slices.Sorted(maps.Keys(flags)))
		}
	}
	return args[0]
}
