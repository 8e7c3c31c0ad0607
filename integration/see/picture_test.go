//go:build integration

package see

import (
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
)

var write = flag.Bool("write", false, "write the pictures of the page in docs/assets")

// drawing makes an SVG of the page: its elements and its style, in a foreignObject. So the picture is
// text, and is light or dark as its reader's machine is.
const drawing = `(async () => {
	const icon = await (await fetch("icon.svg")).text();
	const body = document.body.cloneNode(true);
	for (const e of body.querySelectorAll(".skip, #news, script, noscript")) e.remove();
	for (const e of body.querySelectorAll("title")) e.remove(); // of marks in a chart
	for (const e of document.querySelectorAll("input:checked")) body.querySelector("input[value='" + e.value + "']").setAttribute("checked", "");
	const image = encodeURIComponent(icon.trim()).replaceAll("'", "%27");
	const rules = [...document.styleSheets].flatMap(s => [...s.cssRules]).map(r => r.cssText.replace(/^html\b/, ":root")).filter(r => !r.includes("axe"));
	const style = document.createElement("style");
	style.textContent = "\n" + rules.join("\n") + "\n";
	const w = document.documentElement.clientWidth, h = document.body.getBoundingClientRect().bottom | 0;
	return '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ' + w + ' ' + h + '" width="' + w + '" height="' + h + '">\n' +
		new XMLSerializer().serializeToString(style).replace(' xmlns="http://www.w3.org/1999/xhtml"', "") +
		'\n<foreignObject width="100%" height="100%">\n' + new XMLSerializer().serializeToString(body).replaceAll('"icon.svg"', '"data:image/svg+xml,' + image + '"') + "\n</foreignObject>\n</svg>\n";
})()`

// picture wants a picture in docs/assets to have the style and the headings of the page as it is now.
// With -write it makes the picture. Names stand for the addresses and the host of this run.
func (p *tab) picture(name string, names ...string) {
	p.Helper()
	p.emulate("light", 1100)
	host, err := os.Hostname()
	if err != nil {
		p.Fatal(err)
	}
	svg := strings.NewReplacer(append(names, host+"/", "host/")...).Replace(promise[string](p, drawing))
	svg = regexp.MustCompile(`/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`).ReplaceAllString(svg, "")
	svg = regexp.MustCompile(`>\s*<`).ReplaceAllString(svg, ">\n<")
	file := "../../docs/assets/" + name
	if *write {
		if err := os.WriteFile(file, []byte(svg), 0o644); err != nil {
			p.Fatal(err)
		}
	}
	kept := read(p.T, file)
	parts := regexp.MustCompile(`(?s)<style>.*</style>|<h2[^>]*>[^<]*`)
	if now, before := parts.FindAllString(svg, -1), parts.FindAllString(kept, -1); len(now) < 3 || !slices.Equal(now, before) {
		p.Errorf("docs/assets/%s shows the page as it was; run go test -tags integration -run TestFailover -write in integration/see", name)
	}
}
