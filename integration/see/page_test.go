//go:build integration

package see

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/chromedp"
)

// made serves the page below two paths, as a proxy does with two servers, with states that a test makes up.
type made struct {
	*httptest.Server
	mu     sync.Mutex
	states map[string]string // by path
	status int               // of the stream, if it is not 200
	change chan struct{}
}

func makeUp(t *testing.T, states string) *made {
	t.Helper()
	m := &made{states: map[string]string{"/a/": states, "/b/": states}, change: make(chan struct{})}
	mux := http.NewServeMux()
	assets := http.FileServer(http.Dir("../../cmd/fencepost/internal/page/assets"))
	for path := range m.states {
		mux.Handle(path, http.StripPrefix(path, assets))
		mux.HandleFunc(path+"state.json", func(w http.ResponseWriter, _ *http.Request) {
			states, _, _ := m.now(path)
			fmt.Fprint(w, states)
		})
		mux.HandleFunc(path+"events", func(w http.ResponseWriter, r *http.Request) { m.events(path, w, r) })
	}
	m.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		m.CloseClientConnections()
		m.Close()
	})
	return m
}

func (m *made) now(path string) (states string, status int, change chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.states[path], m.status, m.change
}

// turn changes the states, and the status of streams. With a status other than 0 the streams end.
func (m *made) turn(path, states string, status int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.states[path], m.status = states, status
	close(m.change)
	m.change = make(chan struct{})
}

func (m *made) events(path string, w http.ResponseWriter, r *http.Request) {
	states, status, change := m.now(path)
	if status != 0 {
		w.WriteHeader(status)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for status == 0 {
		fmt.Fprintf(w, "data: %s\n\n", states)
		w.(http.Flusher).Flush()
		select {
		case <-change:
		case <-r.Context().Done():
			return
		}
		states, status, change = m.now(path)
	}
}

// ago is a time of the made-up states. Their now is noon.
func ago(d time.Duration) string {
	return time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC).Add(-d).Format(time.RFC3339)
}

func stateOf(url, kind, what, more string) string {
	return fmt.Sprintf(`{"url":%q,"kind":%q,"now":%q,"requests":7,"interval_seconds":20,"silence_seconds":120,%q:%s%s}`, url, kind, ago(0), kind, what, more)
}

func term(epoch int, holder, state string, from, to time.Duration) string {
	return fmt.Sprintf(`{"epoch":%d,"holder":%q,"state":%q,"from":%q,"to":%q,"validity_seconds":15,"renewals":9}`, epoch, holder, state, ago(from), ago(to))
}

func logOf(complete bool, terms ...string) string {
	return fmt.Sprintf(`{"store":"s3","complete":%v,"terms":[%s],"compactor":{"epoch":4,"holder":"presser","state":"held"},"tail":{"epoch":3,"seq":40},"end":4000,
		"manifest":{"first":0,"floor":{"epoch":3,"seq":20},"floor_offset":3100,"segments":4,"seals":2,"files":0},"unfolded":{"objects":20},"manifests":[{"version":70,"written":%q,"by":"writer","epoch":3,"floor":{"epoch":3,"seq":20},"noted":{"epoch":3,"seq":38},"offset":4000}],
		"seals":[{"position":{"epoch":1,"seq":90},"next":2,"offset":2000,"folded":true}],"pins":[],"samples":[{"at":%q,"records":3000},{"at":%q,"records":3300},{"at":%q,"records":4000}]}`,
		complete, strings.Join(terms, ","), ago(30*time.Second), ago(10*time.Minute), ago(5*time.Minute), ago(0))
}

func list(states ...string) string {
	return strings.ReplaceAll("["+strings.Join(states, ",")+"]", "\n", "")
}

const (
	h    = time.Hour
	text = `document.getElementById("main").innerText`
)

// photo takes a screenshot if somebody wants to look.
func (p *tab) photo(name string) {
	p.Helper()
	dir := os.Getenv("FENCEPOST_SCREENSHOTS")
	if dir == "" {
		return
	}
	var png []byte
	p.do(chromedp.FullScreenshot(&png, 100))
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		p.Fatal(err)
	}
}

func (p *tab) lacks(what ...string) {
	p.Helper()
	shown := ask[string](p, text)
	for _, w := range what {
		if strings.Contains(shown, w) {
			p.Errorf("the page says %q:\n%s", w, shown)
		}
	}
}

// TestPageLog: a log that leads, that fails, and whose store is silent. Of an old state nothing grows older.
func TestPageLog(t *testing.T) {
	terms := []string{term(3, "carol", "held", 3*h, 9*time.Second), term(2, "bob", "held", 5*h, 4*h), term(1, "alice", "lapsed", 7*h, 6*h)}
	fresh := `,"asked":"` + ago(2*time.Second) + `"`
	m := makeUp(t, list(stateOf("s3://bucket/orders", "log", logOf(true, terms...), fresh)))
	p := open(t, m.URL+"/a/")
	p.until("the leader", `document.querySelector(".card.lead .pill.good")?.textContent === "leads" && document.title === "carol leads · Fencepost"`)
	const rows = `[...document.querySelectorAll("section[aria-labelledby=s-terms] tbody tr")].map(r => r.cells[2].innerText).join("|")`
	if got := ask[string](p, rows); got != "leads|its end was not seen|lapsed" {
		t.Errorf("the terms have ended by %q", got)
	}
	if ask[bool](p, `document.querySelector("#terms").getAttribute("aria-label").includes("bob, 60 min, leads")`) {
		t.Error("a leader of the past leads")
	}
	p.photo("page-log")

	m.turn("/a/", list(stateOf("s3://bucket/orders", "log", logOf(true, terms...), `,"error":"access denied","asked":"`+ago(time.Second)+`","read":"`+ago(h)+`"`)), 0)
	p.until("the error", text+`.includes("access denied")`)
	p.until("how old it is", text+`.includes("led when last seen") && `+text+`.includes("then for 2 h") && `+text+`.includes("worked when last seen") && `+text+`.includes("The page shows what was last seen, at")`)
	p.until("the title", `document.title === "carol led when last seen · Fencepost"`)
	if n := ask[int](p, `document.querySelectorAll(".pill.good").length`); n != 0 {
		t.Errorf("%d things are green although the store denies access", n)
	}
	p.photo("page-log-away")

	m.turn("/a/", list(stateOf("s3://bucket/orders", "log", logOf(true, terms...), `,"asked":"`+ago(5*time.Minute)+`","read":"`+ago(6*time.Minute)+`"`)), 0)
	p.until("that the store is silent", text+`.includes("The store does not answer.") && document.getElementById("status").innerText.includes("silent") && document.getElementById("status").className.includes("lost")`)

	m.turn("/a/", list(stateOf("s3://bucket/orders", "log", logOf(true, append([]string{term(4, "dave", "lapsed", 2*h, 2*h)}, terms...)...), fresh)), 0)
	p.until("that nobody leads", `document.title === "nobody leads · Fencepost"`)
	if n := ask[int](p, `[...document.querySelectorAll("section[aria-labelledby=s-terms] .pill.good")].length`); n != 0 {
		t.Error("a leader of the past leads")
	}
}

// TestPageUnread: what was not read yet is not said to be nothing.
func TestPageUnread(t *testing.T) {
	unread := `{"store":"s3","complete":false,"terms":[{"epoch":7,"to":"` + ago(h) + `"}],"leader":{"epoch":7},"compactor":{"epoch":0},"tail":{"epoch":0,"seq":0},"end":0,"manifest":{"floor":{"epoch":0,"seq":0},"floor_offset":0},"manifests":[],"seals":null,"pins":[],"samples":null}`
	m := makeUp(t, list(stateOf("s3://bucket/orders", "log", unread, `,"asked":"`+ago(time.Second)+`"`)))
	p := open(t, m.URL+"/a/")
	p.until("that the lock was not read", text+`.includes("the lock of epoch 7 was not read yet")`)
	p.lacks("nobody leads;", "nobody folds", "Nothing is pinned", "No epoch was sealed", "There is none yet")
	if title := ask[string](p, "document.title"); title != "Fencepost" {
		t.Errorf("the title is %q", title)
	}
}

// TestPageGroup: a group without members is drawn, after a log and under its own tab.
func TestPageGroup(t *testing.T) {
	fresh := `,"asked":"` + ago(time.Second) + `"`
	empty := `{"name":"workers","partitions":8,"validity_seconds":15,"assignment":0,"members":null,"owners":null,"moving":null,"given_up":null,"moves":null}`
	left := `{"name":"workers","partitions":8,"validity_seconds":15,"assignment":9,"members":null,"owners":[-1,-1,-1,-1,-1,-1,-1,-1],"moving":null,"given_up":null,"moves":null}`
	m := makeUp(t, list(stateOf("s3://bucket/orders", "log", logOf(true, term(1, "alice", "held", h, 0)), fresh), stateOf("s3://bucket/empty", "group", empty, fresh),
		stateOf("s3://bucket/left", "group", left, fresh), stateOf("s3://bucket/odd", "group", `{"name":"odd","members":[7,null],"owners":"x"}`, fresh)))
	p := open(t, m.URL+"/a/")
	p.until("the log", `document.querySelector(".card.lead")`)
	p.press("the group without an assignment", "nav button:nth-child(2)")
	p.until("that nobody is there", text+`.includes("Nobody is a member.") && `+text+`.includes("Nothing was assigned yet.")`)
	p.press("the group that everybody has left", "nav button:nth-child(3)")
	p.until("partitions without an owner", text+`.includes("Nobody is a member.") && document.querySelector("path.fx")`)
	p.photo("page-group-empty")

	p.do(log.Disable())
	p.press("a state that the page cannot draw", "nav button:nth-child(4)")
	p.until("what failed", text+`.includes("This page cannot draw s3://bucket/odd: TypeError") && !document.querySelector(".card")`)
	p.press("the log", "nav button:nth-child(1)")
	p.until("the log again", `document.querySelector(".card.lead") && !document.querySelector(".alert")`)
}

// TestPageLock: the lease of a healthy leader looks healthy, however long ago the last look was.
func TestPageLock(t *testing.T) {
	fresh := `,"asked":"` + ago(time.Second) + `"`
	m := makeUp(t, list(stateOf("s3://bucket/nightly", "lock", `{"store":"s3","complete":true,"terms":[`+term(2, "carol", "held", h, 19*time.Second)+`]}`, fresh)))
	p := open(t, m.URL+"/a/")
	p.until("the lease", `document.querySelector(".cards").innerText.includes("from each renewal on; the newest one seen was at")`)
	p.lacks("was due", "ends in")
	m.turn("/a/", list(stateOf("s3://bucket/nightly", "lock", `{"store":"s3","complete":true,"terms":[`+term(2, "carol", "lapsed", h, 2*time.Minute)+`]}`, fresh)), 0)
	p.until("that it has lapsed", text+`.includes("was due") && `+text+`.includes("not renewed since")`)
}

// TestPageComesBack: the page follows again after an answer that ends a stream for good, such as a proxy's 502.
func TestPageComesBack(t *testing.T) {
	fresh := `,"asked":"` + ago(time.Second) + `"`
	one := func(holder string) string {
		return list(stateOf("s3://bucket/orders", "log", logOf(true, term(1, holder, "held", h, 0)), fresh))
	}
	m := makeUp(t, one("alice"))
	p := open(t, m.URL+"/a/")
	p.until("the leader", `document.title.startsWith("alice leads")`)
	p.do(log.Disable()) // the browser logs the 502
	m.turn("/a/", one("bob"), http.StatusBadGateway)
	p.until("that the server is gone", `document.getElementById("status").innerText.includes("no connection") && document.title.startsWith("alice led when last seen") && !document.querySelector(".pill.good")`)
	time.Sleep(4 * time.Second) // the browser has tried again, and got 502
	m.turn("/a/", one("bob"), 0)
	p.until("the next leader", `document.title.startsWith("bob leads")`)
}

// TestPagePlaces: of two servers behind one host each has its own pages.
func TestPagePlaces(t *testing.T) {
	fresh := `,"asked":"` + ago(time.Second) + `"`
	m := makeUp(t, "[]")
	for path, url := range map[string]string{"/a/": "s3://a/log", "/b/": "s3://b/log"} {
		m.turn(path, list(stateOf(url, "log", logOf(true, term(1, "alice", "held", h, 0)), fresh)), 0)
	}
	a := open(t, m.URL+"/a/")
	ctx, cancel := chromedp.NewContext(a.ctx)
	defer cancel()
	b := &tab{t, ctx}
	b.do(chromedp.Navigate(m.URL + "/b/"))
	a.until("its log", text+`.includes("s3://a/log")`)
	b.until("its log", text+`.includes("s3://b/log")`)
	m.turn("/b/", list(stateOf("s3://b/log", "log", logOf(true, term(2, "bob", "held", h, 0)), fresh)), 0)
	b.until("its next leader", `document.title.startsWith("bob leads")`)
	time.Sleep(time.Second)
	if url := ask[string](a, text); !strings.Contains(url, "s3://a/log") {
		t.Errorf("the page of a shows %s", url)
	}
}
