//go:build integration

package see

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var only = flag.String("situations", "", "make only the situations whose names match")

// bounds are what alerts compare with, and what this test puts in place of it: a minute is too
// short for 10,000 objects. What is compared with 0, or counts how often something happened, stays.
var bounds = []struct{ expr, here string }{
	{"fencepost_log_unfolded_objects > 10000", "fencepost_log_unfolded_objects > 100"},
	{"avg_over_time(fencepost_lock_leader_leads[1d]) > 0.5", "max_over_time(fencepost_lock_leader_leads[1h]) == 1"},
	{"fencepost_log_oldest_pin_version > 10000", "fencepost_log_oldest_pin_version > 10"},
	{`fencepost_leader_heartbeat_late_seconds_bucket{le="2.5"}`, `fencepost_leader_heartbeat_late_seconds_bucket{le="1"}`},
	{"fencepost_reader_lag_seconds > 300", "fencepost_reader_lag_seconds > 5"},
	{"(rate(fencepost_writer_commit_seconds_bucket[10m]))) > 5", "(rate(fencepost_writer_commit_seconds_bucket[10m]))) > 2"},
	{"fencepost_delta_lag_seconds > 300", "fencepost_delta_lag_seconds > 5"},
	{"(fencepost_verify_ended_timestamp_seconds > 0) > 691200", "(fencepost_verify_ended_timestamp_seconds > 0) > 20"},
}

// hasten lets alerts wait for ten seconds only, and count over twenty.
func hasten(t *testing.T, rules string) string {
	t.Helper()
	for _, b := range bounds {
		if strings.Count(rules, b.expr) != 1 {
			t.Fatalf("the rules have %q %d times", b.expr, strings.Count(rules, b.expr))
		}
		rules = strings.Replace(rules, b.expr, b.here, 1)
	}
	rules = regexp.MustCompile(`(fencepost_watch_up)\[\d+m\]`).ReplaceAllString(rules, "$1[5s]")
	// A group is looked at each 6 s, and moves may take two looks.
	rules = strings.ReplaceAll(rules, "for: 10m", "for: 25s")
	rules = regexp.MustCompile(`for: \d+[mhd]`).ReplaceAllString(rules, "for: 10s")
	return regexp.MustCompile(`\[\d+[mhd]\]`).ReplaceAllString(rules, "[20s]")
}

// stage is where situations are made: what Prometheus scrapes, and what the exporter watches.
type stage struct {
	*testing.T
	root    string
	targets map[string][]string // by situation
	watched []string
}

// log makes the log of a situation, which the exporter watches.
func (s *stage) log(name string) (url string) {
	s.Helper()
	url = "file://" + s.folder(name)
	initialise(s.T, url)
	s.watched = append(s.watched, url)
	return url
}

func (s *stage) folder(name string) string {
	s.Helper()
	dir := filepath.Join(s.root, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		s.Fatal(err)
	}
	return dir
}

// scraped starts a verb whose metrics Prometheus scrapes.
func (s *stage) scraped(name string, in io.Reader, args ...string) *process {
	s.Helper()
	return s.scrape(name, start(s.T, in, append(args, "--listen", "127.0.0.1:0")...))
}

func (s *stage) scrape(name string, p *process) *process {
	s.Helper()
	s.targets[name] = append(s.targets[name], p.says(s.T, "metrics are at http://([^/]*)/metrics")[1])
	return p
}

// firing are the alerts that ever fired, each with its situation.
func (p *server) firing() ([]string, error) {
	r, err := http.Get(p.url + "/api/v1/query?query=" + url.QueryEscape(`max_over_time(ALERTS{alertstate="firing"}[1h])`))
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	var answer struct {
		Data struct {
			Result []struct{ Metric map[string]string }
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&answer); err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, r := range answer.Data.Result {
		where := r.Metric["situation"]
		if u := r.Metric["url"]; u != "" {
			where = path.Base(u)
		}
		all[r.Metric["alertname"]+" in "+where] = true
	}
	return slices.Sorted(maps.Keys(all)), nil
}

// TestAlertsInRealSituations makes the situation of each alert with real programs. Each alert must
// fire there, and nowhere else.
func TestAlertsInRealSituations(t *testing.T) {
	s := &stage{T: t, root: t.TempDir(), targets: map[string][]string{}}
	began := time.Now()
	var then []func()
	want := map[string]bool{}
	for _, m := range situations {
		if m.make == nil || !regexp.MustCompile(*only).MatchString(m.name) {
			continue
		}
		if f := m.make(s, m.name); f != nil {
			then = append(then, f)
		}
		for _, alert := range m.fires {
			want[alert+" in "+m.name] = true
		}
	}
	s.scraped("exporter", nil, append([]string{"exporter", "--requests-per-minute", "6000"}, s.watched...)...)
	p := scrape(t, hasten(t, read(t, deploy, "prometheus", "fencepost.rules.yml")), s.targets)
	p.until(fmt.Sprintf("count(fencepost_watch_up == 1) == %d", len(s.watched)))
	t.Logf("after %v Prometheus has scraped everything", time.Since(began).Round(time.Second))
	for _, f := range then {
		f()
	}
	t.Logf("after %v the situations are made", time.Since(began).Round(time.Second))

	made := time.Now()
	expected := slices.Sorted(maps.Keys(want))
	var fired []string
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(500 * time.Millisecond) {
		var err error
		if fired, err = p.firing(); err != nil {
			t.Fatal(err)
		}
		missing := slices.ContainsFunc(expected, func(e string) bool { return !slices.Contains(fired, e) })
		if !missing && time.Since(made) > 12*time.Second { // what waits for ten seconds would have fired
			break
		}
	}
	t.Logf("after %v: %d alerts have fired", time.Since(began).Round(time.Second), len(fired))
	for _, e := range expected {
		if !slices.Contains(fired, e) {
			t.Errorf("it never fires: %s", e)
		}
	}
	for _, f := range fired {
		if !want[f] {
			t.Errorf("it fires without need: %s", f)
		}
	}
}

// TestNoExporter: an alert says that nothing is watched, and no other one does. This situation takes a Prometheus of its own.
func TestNoExporter(t *testing.T) {
	p := scrape(t, hasten(t, read(t, deploy, "prometheus", "fencepost.rules.yml")), map[string][]string{"nothing": {"127.0.0.1:1"}})
	p.until(`ALERTS{alertstate="firing"}`)
	if fired, err := p.firing(); err != nil || !slices.Equal(fired, []string{"FencepostNoExporter in "}) {
		t.Errorf("%v fire: %v", fired, err)
	}
}

// TestSituations: each alert has a situation.
func TestSituations(t *testing.T) {
	rules := read(t, deploy, "prometheus", "fencepost.rules.yml")
	for _, a := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(rules, -1) {
		if !slices.ContainsFunc(situations, func(s situation) bool { return slices.Contains(s.fires, a[1]) }) {
			t.Errorf("no situation lets %s fire", a[1])
		}
	}
}
