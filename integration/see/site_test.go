//go:build integration

package see

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestSite: the pages of the documentation load nothing from elsewhere, fit on a phone, and
// axe-core finds nothing, in light and in dark. The calculator of costs can be used with a
// keyboard, and says what its table says. Make site builds the pages.
func TestSite(t *testing.T) {
	const site = "../../.cache/site"
	if _, err := os.Stat(site + "/index.html"); err != nil {
		t.Fatalf("run make site first: %v", err)
	}
	script := axe(t)
	srv := httptest.NewServer(http.FileServer(http.Dir(site)))
	defer srv.Close()
	p := open(t, srv.URL)
	for _, page := range []string{"index", "replicas", "concepts", "run", "exec", "metrics", "runbook", "costs", "options", "compared"} {
		for _, scheme := range []string{"light", "dark"} {
			p.emulate(scheme, 1280)
			p.do(chromedp.Navigate(srv.URL+"/"+page+".html"), chromedp.Evaluate(script, nil))
			p.look("site-"+page+"-"+scheme, scheme, 1280)
			p.look("site-"+page+"-phone-"+scheme, scheme, 390)
		}
	}
	p.search(srv.URL)
	p.calculator(srv.URL)
}

// search finds a page.
func (p *tab) search(address string) {
	p.Helper()
	p.emulate("light", 1280)
	p.do(chromedp.Navigate(address), chromedp.SendKeys(".md-search__input", "zombie", chromedp.ByQuery))
	p.until("what the search has found", `[...document.querySelectorAll(".md-search-result__link")].some(e => e.href.includes(".html"))`)
}

// calculator types numbers, with the keyboard alone.
func (p *tab) calculator(address string) {
	p.Helper()
	p.do(chromedp.Navigate(address + "/costs.html"))
	p.until("the calculator", `document.querySelector("form.costs output table")`)
	said := func(row string) string {
		return ask[string](p, `[...document.querySelectorAll("form.costs output tr")].find(r => r.cells[0].textContent === "`+row+`").cells[1].textContent`)
	}
	table := func(row, column string) string {
		return ask[string](p, `[...document.querySelectorAll("table")].find(t => t.rows[0].cells[0].textContent === "records a second").rows[`+row+`].cells[`+column+`].textContent`)
	}
	if got, want := said("appends and checkpoints"), table("3", "1")+".00"; got != want {
		p.Errorf("the calculator begins with %s, the table has %s", got, want)
	}
	p.do(chromedp.Evaluate(`document.querySelector("form.costs [name=rate]").select()`, nil), chromedp.KeyEvent("400"))
	if got, want := said("appends and checkpoints"), table("4", "1")+".00"; got != want {
		p.Errorf("for 400 records the calculator says %s, the table %s", got, want)
	}
	p.do(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.ArrowDown+kb.ArrowDown))
	if got, want := said("appends and checkpoints"), table("4", "3")+".00"; got != want {
		p.Errorf("with the third setting the calculator says %s, the table %s", got, want)
	}
	if live := ask[string](p, `document.querySelector("form.costs output").getAttribute("aria-live")`); live != "polite" {
		p.Errorf("a screen reader is not told: %q", live)
	}
	if bare := ask[string](p, `[...document.querySelectorAll("form.costs :is(input, select)")].filter(e => !e.labels.length).map(e => e.name).join()`); strings.TrimSpace(bare) != "" {
		p.Errorf("%s have no label", bare)
	}
}
