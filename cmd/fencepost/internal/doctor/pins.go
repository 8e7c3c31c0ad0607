package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
)

const (
	// oldPin is how long a pin without a time to live may hold before somebody is asked.
	oldPin = 14 * day
	day    = 24 * time.Hour
	// holdPrefix begins the names of the pins that hold a published table. The table's id follows.
	holdPrefix = "delta/"
)

// whereabouts says what is known of the published table.
type whereabouts int

const (
	notLookedAt whereabouts = iota // its place is not known, or it cannot be read
	noTable
	takenOut // the log was unpublished
	inTable
)

// pins looks for forgotten pins.
func (x *examination) pins(ctx context.Context) {
	r, err := reader.Open(ctx, x.st, nil)
	var all []manifest.Pin
	if err == nil {
		all, err = r.Pins(ctx)
	}
	if err != nil {
		x.add("pins", Problem, "run `fencepost verify`", "%v", err)
		return
	}
	before := len(x.found)
	var holds []manifest.Pin
	for _, p := range all {
		switch age := x.Now().Sub(p.Created); {
		case p.TTL != 0 || p.Expired:
		case strings.HasPrefix(p.Name, holdPrefix):
			holds = append(holds, p)
		case age > oldPin:
			x.add("pins", Warning, fmt.Sprintf("`fencepost unpin '%s'`, if nobody needs it", p.Name),
				"%q has held version %d for %d days: everything that was dropped since stays", p.Name, p.Version, int(age/day))
		}
	}
	x.holds(holds)
	if len(x.found) > before {
		return
	}
	text := fmt.Sprintf("%d; no forgotten one", len(all))
	if len(holds) > 0 {
		text += fmt.Sprintf(". %d of them %s the published table", len(holds), english.PluralWord(len(holds), "holds", "hold"))
	}
	x.add("pins", OK, "", "%s", text)
}

// holds looks at the pins of published tables. An old one is no fault: it keeps the files of a table
// that engines read, and a publisher moves it only if there is a newer manifest. So each warning
// says first what keeps the table whole.
func (x *examination) holds(pins []manifest.Pin) {
	newest, live := map[string]manifest.Pin{}, map[string]bool{}
	for _, p := range pins { // in the order of their versions
		newest[p.Name] = p
		live[p.Name] = live[p.Name] || x.place == inTable && p.Version == x.heldAt
	}
	found := false
	for _, is := range live {
		found = found || is
	}
	if x.place == inTable && !found {
		x.add("pins", Problem, "keep `fencepost publish --watch` running: it pins the log again with a later commit. Until then engines may not find files of the table",
			"no pin holds version %d of the manifest, which the published table needs: somebody has removed it", x.heldAt)
		return
	}
	told := map[string]bool{}
	for _, p := range pins {
		p = newest[p.Name] // while a publisher moves it, the older ones are still needed
		age := x.Now().Sub(p.Created)
		if age <= oldPin || told[p.Name] {
			continue
		}
		told[p.Name] = true
		unpin := fmt.Sprintf("`fencepost unpin '%s'`", p.Name)
		kept := fmt.Sprintf("%q has held version %d for %d days", p.Name, p.Version, int(age/day))
		stale := p.Version < x.state.Manifest.Version
		switch {
		case x.place == takenOut:
			x.add("pins", Warning, "run `fencepost unpublish` again. If the pin stays, it is of a table that was deleted: "+unpin,
				"%s, and the log was taken out of its table: everything that was dropped since stays", kept)
		case x.place == noTable:
			x.add("pins", Warning, "if its Delta log was deleted: "+unpin,
				"%s, and no table is published from this log any more: everything that was dropped since stays", kept)
		case x.place == inTable && !live[p.Name]:
			x.add("pins", Warning, "if the Delta log of that other table was deleted: "+unpin,
				"%s, and the published table is another: everything that was dropped since stays", kept)
		case !stale:
		case x.place == inTable:
			x.add("pins", Warning, "run `fencepost publish --watch`, which moves it; or `fencepost unpublish`, if nobody reads the table any more",
				"%s, although the newest manifest is %d: nobody publishes the table any more, and everything that was dropped since stays", kept, x.state.Manifest.Version)
		case x.format.Files != nil:
			x.add("pins", Warning, "run doctor again with --files, to see whether the table is still there",
				"%s, although the newest manifest is %d: perhaps nobody publishes its table any more", kept, x.state.Manifest.Version)
		default:
			x.add("pins", Warning, "first see what is said of the published table",
				"%s, although the newest manifest is %d: perhaps nobody publishes its table any more", kept, x.state.Manifest.Version)
		}
	}
}
