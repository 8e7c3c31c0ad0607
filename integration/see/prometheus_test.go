//go:build integration

package see

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const deploy = "../../deploy"

// TestAlerts lets promtool try each alert, and wants each to have a test and an entry in the
// runbook.
func TestAlerts(t *testing.T) {
	dir := filepath.Join(deploy, "prometheus")
	for _, args := range [][]string{{"check", "rules", "fencepost.rules.yml"}, {"test", "rules", "fencepost.rules.test.yml", "fencepost.rules.days.test.yml"}} {
		c := exec.CommandContext(t.Context(), "promtool", args...)
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
	rules, tests := read(t, dir, "fencepost.rules.yml"), read(t, dir, "fencepost.rules.test.yml")+read(t, dir, "fencepost.rules.days.test.yml")
	runbook, table := read(t, "../../docs/alerts.md"), read(t, "../../docs/metrics.md")
	alerts := regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(rules, -1)
	if len(alerts) < 10 {
		t.Fatalf("%d alerts", len(alerts))
	}
	for _, a := range alerts {
		if !strings.Contains(runbook, "\n## "+a[1]+"\n") {
			t.Errorf("docs/alerts.md has no entry for %s", a[1])
		}
		if !strings.Contains(rules, "runbook_url: https://github.com/fencepost/fencepost/blob/main/docs/alerts.md#"+strings.ToLower(a[1])+"\n") {
			t.Errorf("%s does not lead to its entry", a[1])
		}
		if !regexp.MustCompile(a[1] + `\n\s+exp_alerts:\n\s+- exp_labels`).MatchString(tests) {
			t.Errorf("no test lets %s fire", a[1])
		}
	}
	for _, name := range metrics(rules) {
		if !strings.Contains(table, "`"+name+"`") {
			t.Errorf("an alert asks for %s, which docs/metrics.md does not list", name)
		}
	}
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// metrics are the names in queries, without what a histogram adds.
func metrics(text string) (names []string) {
	for _, name := range regexp.MustCompile(`fencepost_\w+`).FindAllString(text, -1) {
		if i := slices.IndexFunc([]string{"_bucket", "_count", "_sum"}, func(s string) bool { return strings.HasSuffix(name, "seconds"+s) }); i >= 0 {
			name = name[:strings.LastIndex(name, "_")]
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// server is a Prometheus.
type server struct {
	t   *testing.T
	url string
}

// scrape starts a Prometheus with these rules. Each target has its situation as a label.
func scrape(t *testing.T, rules string, targets map[string][]string) *server {
	t.Helper()
	dir := t.TempDir()
	config := "global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}\nrule_files: [rules.yml]\n" +
		"scrape_configs:\n- job_name: fencepost\n  static_configs:\n"
	for _, situation := range slices.Sorted(maps.Keys(targets)) {
		config += fmt.Sprintf("  - {targets: ['%s'], labels: {situation: '%s'}}\n", strings.Join(targets[situation], "', '"), situation)
	}
	for name, text := range map[string]string{"prometheus.yml": config, "rules.yml": rules} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	addr := free(t)
	c := exec.Command("prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr)
	var log strings.Builder
	c.Stdout, c.Stderr = &log, &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return &server{t, "http://" + addr}
}

func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// query returns how many series answer a query.
func (s *server) query(q string) (int, error) {
	r, err := http.Get(s.url + "/api/v1/query?query=" + url.QueryEscape(q))
	if err != nil {
		return 0, err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, err
	}
	var answer struct {
		Status, Error string
		Data          struct{ Result []struct{ Value [2]any } }
	}
	if err := json.Unmarshal(b, &answer); err != nil {
		return 0, fmt.Errorf("%w: %s", err, b)
	}
	if answer.Status != "success" {
		return 0, fmt.Errorf("prometheus answers %s", b)
	}
	n := 0
	for _, r := range answer.Data.Result {
		if r.Value[1] != "NaN" {
			n++
		}
	}
	return n, nil
}

func (s *server) until(q string) {
	s.t.Helper()
	var err error
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(time.Second) {
		var n int
		if n, err = s.query(q); err == nil && n > 0 {
			return
		}
	}
	s.t.Fatalf("Prometheus never answers %s: %v", q, err)
}

// TestDashboard runs a log and a group with a failover, and asks each query of the dashboard.
func TestDashboard(t *testing.T) {
	log, shared := "file://"+t.TempDir(), t.TempDir()
	_ = start(t, nil, "init", "--grace", "1s", log).Wait()
	at := func(p *process) string { return p.says(t, "metrics are at http://([^/]*)/metrics")[1] }
	first := start(t, endless(t.Context(), "first"), "append", "--listen", "127.0.0.1:0", "--validity", "5s", log)
	targets := []string{at(first)}
	first.says(t, "leading in epoch 1")
	for _, args := range [][]string{
		{"append", "--listen", "127.0.0.1:0", "--validity", "5s", log},
		{"compact", "--watch", "--interval", "1s", "--min-objects", "20", "--listen", "127.0.0.1:0", log},
		{"cat", "--follow", "--listen", "127.0.0.1:0", log},
		{"publish", "--watch", "--listen", "127.0.0.1:0", log},
		{"exporter", "--listen", "127.0.0.1:0", "--requests-per-minute", "1200", log, "file://" + shared},
	} {
		var in io.Reader
		if args[0] == "append" {
			in = endless(t.Context(), "second")
		}
		targets = append(targets, at(start(t, in, args...)))
	}
	workers(t, shared, "worker-1", "worker-2")
	here := &stage{T: t, targets: map[string][]string{"programs": targets}}
	here.verifies("verification", log)
	s := scrape(t, "", here.targets)
	s.until(`fencepost_log_leader_epoch == 1`)
	s.until(`fencepost_leader_leads{election="log"} == 1`)
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	s.until(`changes(fencepost_log_leader_epoch[5m]) == 1`)
	s.until(`fencepost_partitions_owned > 0`)
	s.until(`fencepost_compactor_pruned_objects_total > 0 or sum(fencepost_compactor_folded_records_total) > 0`)
	s.until(`rate(fencepost_reader_records_total[1m]) > 0`)

	var dashboard struct {
		Panels []struct {
			Title   string
			Type    string
			Targets []struct{ Expr string }
		}
	}
	text := read(t, deploy, "grafana", "fencepost.json")
	if err := json.Unmarshal([]byte(text), &dashboard); err != nil {
		t.Fatal(err)
	}
	asked := 0
	for _, p := range dashboard.Panels {
		if (len(p.Targets) == 0) != (p.Type == "row") {
			t.Errorf("panel %q has %d queries", p.Title, len(p.Targets))
		}
		for _, target := range p.Targets {
			asked++
			q := strings.ReplaceAll(target.Expr, "$url", ".*")
			var n int
			var err error
			for range 60 { // a rate needs some scrapes
				if n, err = s.query(q); n > 0 {
					break
				}
				time.Sleep(time.Second)
			}
			if err != nil || n == 0 {
				t.Errorf("panel %q, %s: %d series, %v", p.Title, q, n, err)
			}
		}
	}
	if asked < 45 {
		t.Errorf("only %d queries were asked", asked)
	}
	// Not the reverse: more than half of the metrics have no panel. Whoever adds a metric decides.
	table := read(t, "../../docs/metrics.md")
	for _, name := range metrics(text) {
		if !strings.Contains(table, "`"+name+"`") {
			t.Errorf("the dashboard asks for %s, which docs/metrics.md does not list", name)
		}
	}
}
