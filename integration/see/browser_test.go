//go:build integration

package see

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/parquet-go/parquet-go"

	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	_ "github.com/fencepost/fencepost/store/dirstore"
	"github.com/fencepost/fencepost/store/probe"
	"github.com/fencepost/fencepost/writer"
)

// tab is a page in a browser. Errors of its scripts, refused resources, and requests to other
// hosts fail the test.
type tab struct {
	*testing.T
	ctx context.Context
}

func open(t *testing.T, address string) *tab {
	t.Helper()
	flags := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.Flag("disable-dev-shm-usage", true), chromedp.WindowSize(1280, 900))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), flags...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 10*time.Minute)
	t.Cleanup(cancel)
	var mu sync.Mutex
	complain := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		t.Errorf(format, args...)
	}
	chromedp.ListenTarget(ctx, func(ev any) {
		switch ev := ev.(type) {
		case *network.EventRequestWillBeSent:
			if u := ev.Request.URL; !strings.HasPrefix(u, address) && !strings.HasPrefix(u, "data:") {
				complain("the page requests %s", u)
			}
		case *runtime.EventExceptionThrown:
			complain("a script failed: %v", ev.ExceptionDetails)
		case *log.EventEntryAdded:
			if ev.Entry.Level == log.LevelError {
				complain("the browser says: %s", ev.Entry.Text)
			}
		}
	})
	p := &tab{t, ctx}
	p.do(network.Enable(), log.Enable(), chromedp.Navigate(address))
	return p
}

func (p *tab) do(actions ...chromedp.Action) {
	p.Helper()
	if err := chromedp.Run(p.ctx, actions...); err != nil {
		p.Fatal(err)
	}
}

func ask[T any](p *tab, js string) (v T) {
	p.Helper()
	p.do(chromedp.Evaluate(js, &v))
	return v
}

// promise returns what a promise of the page resolves to.
func promise[T any](p *tab, js string) (v T) {
	p.Helper()
	p.do(chromedp.Evaluate(js, &v, func(e *runtime.EvaluateParams) *runtime.EvaluateParams { return e.WithAwaitPromise(true) }))
	return v
}

// patience is how long a test waits for what the page must show. A log and a group that share
// 12 requests a minute are shown after minutes.
const patience = 4 * time.Minute

// until waits until an expression is true. It looks again whenever the page changes.
func (p *tab) until(what, js string) {
	p.Helper()
	shown := promise[string](p, fmt.Sprintf(`new Promise(done => {
		let failed = "";
		const end = shown => { watch.disconnect(); clearTimeout(late); done(shown); };
		const see = () => {
			try { if (%s) end(""); } catch (e) { failed = e + "\n"; }
		};
		const watch = new MutationObserver(see);
		const late = setTimeout(() => end(failed + document.body.innerText + "\n"), %d);
		watch.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
		see();
	})`, js, patience.Milliseconds()))
	if shown != "" {
		p.Fatalf("the page never shows %s; it shows:\n%s", what, shown)
	}
}

// press clicks a button as soon as the page has it. The page draws itself anew at any time, so
// one expression finds the button and clicks it.
func (p *tab) press(what, selector string) {
	p.Helper()
	p.until(what, fmt.Sprintf("(e => e && (e.click(), true))(document.querySelector(%q))", selector))
}

// look emulates a device, and takes a screenshot if somebody wants to look.
func (p *tab) look(name, scheme string, width int64) {
	p.Helper()
	p.emulate(scheme, width)
	if sideways := ask[int](p, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); sideways > 0 {
		p.Errorf("%s is %d pixels too wide", name, sideways)
	}
	p.accessible(name)
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

// emulate makes the browser that of a device.
func (p *tab) emulate(scheme string, width int64) {
	p.Helper()
	p.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}),
		emulation.SetDeviceMetricsOverride(width, 900, 1, width < 600))
	p.do(chromedp.Evaluate("dispatchEvent(new Event('resize'))", nil))
}

// accessible lets axe-core look for what is wrong.
func (p *tab) accessible(name string) {
	p.Helper()
	type found struct {
		ID, Help string
		Nodes    []struct {
			HTML           string
			FailureSummary string
		}
	}
	for _, f := range promise[[]found](p, `axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations.map(v => ({id: v.id, help: v.help, nodes: v.nodes.map(n => ({html: n.html, failureSummary: n.failureSummary}))})))`) {
		p.Errorf("%s: %s: %s", name, f.ID, f.Help)
		for _, n := range f.Nodes[:min(len(f.Nodes), 3)] {
			p.Logf("%s\n%s", n.HTML, n.FailureSummary)
		}
	}
}

// workers are members of a group on a directory.
func workers(t *testing.T, dir string, names ...string) (leave func(int)) {
	t.Helper()
	st, err := store.Open(t.Context(), "file://"+dir)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var leaves []context.CancelFunc
	for _, name := range names {
		g, err := group.Join(t.Context(), st, &group.Options{
			Name: "orders", Partitions: 96, Validity: 10 * time.Second, Identity: name, Probe: &probe.Options{Clients: 2, Rounds: 1, Refusals: 2},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		leaves = append(leaves, cancel)
		all.Go(func() {
			_ = g.Run(ctx, func(ctx context.Context, _ *group.Partition) error {
				<-ctx.Done()
				return nil
			})
		})
	}
	t.Cleanup(func() {
		for _, leave := range leaves {
			leave()
		}
		all.Wait()
	})
	return func(i int) { leaves[i]() }
}

// tableOf returns a function that adds a file to the table of a new log.
func tableOf(t *testing.T, url string) (edit func()) {
	t.Helper()
	initialise(t, url)
	w, err := writer.Open(t.Context(), at(t, url), fence.NewToken(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close(context.Background()) })
	return func() {
		t.Helper()
		f, err := w.CreateFile(t.Context(), ".parquet", 0)
		if err == nil {
			rows := parquet.NewGenericWriter[struct{ ID int64 }](f)
			if _, err = rows.Write([]struct{ ID int64 }{{1}, {2}}); err == nil {
				err = errors.Join(rows.Close(), f.Close())
			}
		}
		if err == nil {
			err = w.CommitFiles(t.Context(), manifest.Edit{Add: []manifest.File{f.File()}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestFailover: a leader is killed, and the page shows the next one, the gap between them, and the
// seal, without a reload. It can be used with a keyboard, on a phone, in light and dark.
func TestFailover(t *testing.T) {
	script := axe(t)
	dir, groupDir, lockDir, tableDir := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	url := "file://" + dir
	init := start(t, nil, "init", url)
	_ = init.Wait()
	first := start(t, endless(t.Context(), "first"), "append", "--validity", "5s", url)
	first.says(t, "leading in epoch 1")
	start(t, endless(t.Context(), "second"), "append", "--validity", "5s", url).says(t, "waiting for")
	start(t, nil, "compact", "--watch", "--interval", "1s", "--min-objects", "100", url)
	leave := workers(t, groupDir, "worker-1", "worker-2", "worker-3")
	pin := start(t, nil, "pin", "--name", "before-the-move", url)
	_ = pin.Wait()

	_ = start(t, nil, "exec", "file://"+lockDir, "--", "sleep", "2").Wait()
	start(t, nil, "exec", "file://"+lockDir, "--", "sleep", "600")

	edit := tableOf(t, "file://"+tableDir)
	edit()
	_ = start(t, nil, "publish", "file://"+tableDir).Wait()
	start(t, nil, "compact", "--watch", "--interval", "1s", "--min-objects", "1", "file://"+tableDir)

	serve := start(t, nil, "serve", "--listen", "127.0.0.1:0", "--requests-per-minute", "1200", url, "file://"+groupDir, "file://"+lockDir, "file://"+tableDir)
	address := serve.says(t, "the page is at (http://[^ ]*)")[1]
	p := open(t, address)
	p.until("the leader", `document.querySelector(".card.lead .pill.good")?.textContent === "leads" && document.title.includes("leads")`)
	if n := ask[int](p, `document.querySelectorAll("rect.term").length`); n != 1 {
		t.Errorf("%d terms are drawn before the failover", n)
	}
	p.until("a rate", `document.querySelector("path.rate")`)

	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.until("the second term", `document.querySelector("rect.term[data-epoch='2']") && document.querySelector("rect.term[data-epoch='1']")`)
	p.until("the gap", `document.querySelector("rect.gap title")?.textContent.startsWith("nobody led for")`)
	p.until("the seal", `[...document.querySelectorAll("path.seal title")].some(e => e.textContent.startsWith("seal in slot 1/"))`)
	p.until("how the term ended", `[...document.querySelectorAll("#s-terms")].length && document.querySelector("section[aria-labelledby=s-terms]").innerText.includes("lapsed")`)
	p.until("that it is told", `document.getElementById("news").textContent.includes("in epoch 2")`)
	p.until("a fold", `!document.querySelector("section[aria-labelledby=s-the-log] .scale").innerText.includes("floor 0/1")`)
	p.until("the manifests", `/compactor/.test(document.querySelector("section[aria-labelledby=s-manifests]").textContent) && /writer/.test(document.querySelector("section[aria-labelledby=s-manifests]").textContent)`)
	p.until("a verdict", `document.getElementById("verdict").innerText.includes("healthy")`)
	p.until("the pin", `document.querySelector("section[aria-labelledby=s-pins]").textContent.includes("before-the-move")`)
	if label := ask[string](p, `document.querySelector("#terms").getAttribute("aria-label")`); !strings.Contains(label, "Epoch 1:") || !strings.Contains(label, "Nobody for") || !strings.Contains(label, "Epoch 2:") {
		t.Errorf("a screen reader is told %q", label)
	}

	p.do(chromedp.Evaluate(script, nil))
	for _, scheme := range []string{"light", "dark"} {
		p.look("log-"+scheme, scheme, 1280)
		p.look("log-phone-"+scheme, scheme, 390)
	}
	names := []string{url, "s3://bucket/orders", "file://" + groupDir, "s3://bucket/workers", "file://" + lockDir, "s3://bucket/nightly", "file://" + tableDir, "s3://bucket/lake"}
	p.picture("serve-log.svg", names...)
	p.keyboard()

	p.press("the group's tab", "nav button:nth-child(2)")
	p.until("the members", `document.querySelectorAll("section[aria-labelledby=s-shares] tbody tr").length === 3`)
	p.until("the shares", `[...document.querySelectorAll("section[aria-labelledby=s-shares] tbody tr")].every(r => r.cells[2].innerText === "32")`)
	leave(2)
	p.until("the move", `[...document.querySelectorAll("section[aria-labelledby=s-moves] tbody tr")].some(r => r.cells[2].innerText === "worker-3")`)
	for _, scheme := range []string{"light", "dark"} {
		p.look("group-"+scheme, scheme, 1280)
		p.look("group-phone-"+scheme, scheme, 390)
	}
	p.picture("serve-group.svg", names...)

	p.press("the lock's tab", "nav button:nth-child(3)")
	p.until("who leads", `document.querySelector(".card.lead .pill.good")?.textContent === "leads" && document.title.includes("leads")`)
	p.until("the lease", `document.querySelector(".cards").innerText.includes("from each renewal on; the newest one seen was at")`)
	p.until("that there is no log", `document.querySelector(".cards").innerText.includes("only a lock")`)
	p.until("both terms, and no seal", `document.querySelectorAll("rect.term").length === 2 && !document.querySelector("path.seal")`)
	p.press("the last five minutes", "input[value='5 min']")
	p.until("how the first ended", `document.querySelector("section[aria-labelledby=s-terms]").innerText.includes("resigned")`)
	for _, scheme := range []string{"light", "dark"} {
		p.look("lock-"+scheme, scheme, 1280)
		p.look("lock-phone-"+scheme, scheme, 390)
	}
	p.picture("serve-lock.svg", names...)

	p.press("the table's tab", "nav button:nth-child(4)")
	const card = `[...document.querySelectorAll(".card")].find(e => e.querySelector("dt").textContent === "Delta table").innerText`
	p.until("what is published", card+`.includes("version 1") && `+card+`.includes("has all folded edits")`)
	edit()
	p.until("that it is behind", card+`.includes("1 edit behind")`)
	p.look("table-light", "light", 1280)
	p.look("table-phone-dark", "dark", 390)
	_ = start(t, nil, "publish", "file://"+tableDir).Wait()
	p.until("the next version", card+`.includes("version 2") && `+card+`.includes("has all folded edits")`)
	p.lost(serve)
}

// keyboard goes through the page with Tab, and chooses a time with an arrow.
func (p *tab) keyboard() {
	p.Helper()
	p.do(chromedp.Evaluate(`var reached = new Set();
		addEventListener("focusin", ({target: e}) => reached.add(e.className || e.name || e.tagName.toLowerCase()));
		document.activeElement.blur(); document.body.tabIndex = -1; document.body.focus(); document.body.removeAttribute("tabindex")`, nil))
	for range 30 {
		p.do(chromedp.KeyEvent(kb.Tab))
	}
	seen := ask[[]string](p, "[...reached]")
	for _, want := range []string{"skip", "button", "span", "scroll"} {
		if !slices.Contains(seen, want) {
			p.Errorf("Tab never reaches %q, only %v", want, seen)
		}
	}
	before := ask[string](p, `(e => (e.focus(), e.value))(document.querySelector("input[name=span]:checked"))`)
	p.do(chromedp.KeyEvent(kb.ArrowRight))
	p.until("another time than "+before, fmt.Sprintf(`document.querySelector("input[name=span]:checked").value !== %q`, before))
	p.do(chromedp.Evaluate(`var drawn = document.querySelector(".cards")`, nil))
	p.until("itself anew", `document.querySelector(".cards") !== drawn`)
	if name := ask[string](p, `document.activeElement.name || ""`); name != "span" {
		p.Errorf("the focus is lost to %q when the page draws itself", ask[string](p, `document.activeElement.outerHTML.slice(0, 80)`))
	}
}

// lost ends the server: the page must say so, and not show old data as new.
func (p *tab) lost(serve *process) {
	p.Helper()
	// The browser logs that the connection is refused. That is meant.
	p.do(log.Disable())
	_ = serve.Process.Kill()
	p.until("that the server is gone", `document.getElementById("status").innerText.includes("no connection")`)
}

// TestManyTabs: however many pages are open, the store gets no more requests.
func TestManyTabs(t *testing.T) {
	url := "file://" + t.TempDir()
	_ = start(t, nil, "init", url).Wait()
	began := time.Now()
	serve := start(t, nil, "serve", "--listen", "127.0.0.1:0", url)
	address := serve.says(t, "the page is at (http://[^ ]*)")[1]
	p := open(t, address)
	p.until("the log", `document.querySelector(".cards")`)
	for range 10 {
		ctx, cancel := chromedp.NewContext(p.ctx)
		defer cancel()
		other := &tab{t, ctx}
		other.do(chromedp.Navigate(address))
		other.until("the log", `document.querySelector(".cards")`)
	}
	requests := look(t, address)[0].Requests
	took := time.Since(began)
	if most := 12 * (int(took/time.Minute) + 1); requests > most {
		t.Errorf("%d requests to the store in %v, more than %d", requests, took, most)
	}
	t.Logf("%d requests with 11 tabs in %v", requests, took.Round(time.Second))
}
