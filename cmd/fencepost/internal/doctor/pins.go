package doctor

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/fencepost/fencepost/inspect"
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
	var age func(key string, at time.Time) time.Duration
	if err == nil {
		age, err = x.ages(ctx, inspect.Pin)
	}
	if err != nil {
		x.failed("pins", err, "run `fencepost verify`")
		return
	}
	before := len(x.found)
	holds := x.named(all, age)
	x.holds(ctx, holds, age)
	if len(x.found) > before {
		return
	}
	text := fmt.Sprintf("%d; no forgotten one", len(all))
	if len(holds) > 0 {
		text += fmt.Sprintf(". %d of them %s the published table", len(holds), english.PluralWord(len(holds), "holds", "hold"))
	}
	x.add("pins", OK, "", "%s", text)
}

// named looks at the pins that people and backups have made, and returns those of published tables.
// Unpin removes all pins of a name, so it judges them by name.
func (x *examination) named(all []manifest.Pin, age func(string, time.Time) time.Duration) (holds []manifest.Pin) {
	young, told := map[string]bool{}, map[string]bool{}
	for _, p := range all {
		young[p.Name] = young[p.Name] || !p.Expired && (p.TTL != 0 || age(p.Key, p.Created) <= oldPin)
	}
	for _, p := range all {
		old := age(p.Key, p.Created)
		switch {
		case p.TTL != 0 || p.Expired:
		case strings.HasPrefix(p.Name, holdPrefix):
			holds = append(holds, p)
		case old <= oldPin || told[p.Name]:
		case young[p.Name]:
			told[p.Name] = true
			x.add("pins", Warning, "leave both while the younger one is in use: unpin removes all pins of a name. A backup that completes removes its own",
				"%q has held version %d for %d days, and there is a younger pin of that name: everything that was dropped since stays", p.Name, p.Version, int(old/day))
		default:
			told[p.Name] = true
			x.add("pins", Warning, "first find out whether the process that made it still runs, or whether anybody reads that version. Only if not: "+unpin(p.Name),
				"%q has held version %d for %d days, for %s: everything that was dropped since stays", p.Name, p.Version, int(old/day), p.Holder)
		}
	}
	return holds
}

// holds looks at the pins of published tables. An old one is no fault: it keeps the files of a table
// that engines read, and a publisher moves it only if there is a newer manifest. A program may publish
// the log to another place too, of which doctor knows nothing. So a warning says what to find out
// before a pin is removed, and there is none if the pin holds nothing that could be deleted.
func (x *examination) holds(ctx context.Context, pins []manifest.Pin, age func(string, time.Time) time.Duration) {
	newest, live := map[string]manifest.Pin{}, map[string]bool{}
	for _, p := range pins { // in the order of their versions
		newest[p.Name] = p
		if x.place == inTable && p.Version == x.heldAt {
			live[p.Name] = true
		}
	}
	if x.place == inTable && len(live) == 0 {
		x.unheld(ctx)
		return
	}
	told := map[string]bool{}
	for _, p := range pins {
		p = newest[p.Name] // while a publisher moves it, the older ones are still needed
		old := age(p.Key, p.Created)
		if old <= oldPin || told[p.Name] || p.Version >= x.state.Version {
			continue
		}
		told[p.Name] = true
		why, remedy := x.forgotten(p.Name, live[p.Name])
		x.add("pins", Warning, remedy, "%q has held version %d for %d days, although the newest manifest is %d: %s, and everything that was dropped since stays",
			p.Name, p.Version, int(old/day), x.state.Version, why)
	}
}

// unheld is told that no pin holds what the published table needs. A publisher may have moved its pin after
// the table was read, so it looks at the table once more.
func (x *examination) unheld(ctx context.Context) {
	_, r, _, err := x.published(ctx)
	switch {
	case err != nil:
		x.failed("pins", err, "run `fencepost published`, and see docs/delta.md")
	case r.Sources[0].Manifest == x.heldAt:
		x.add("pins", Problem, "keep `fencepost publish --watch` running: it pins the log again with a later commit. Until then engines may not find files of the table",
			"no pin holds version %d of the manifest, which the published table needs: somebody has removed it", x.heldAt)
	}
}

// forgotten says why the pin of a published table may be forgotten, and what to do.
func (x *examination) forgotten(name string, live bool) (why, remedy string) {
	elsewhere := "the log may be published to another place too. First look there for the table with the id in the name of the pin. Only if that table was deleted: " + unpin(name)
	switch {
	case x.place == takenOut:
		return "the log was taken out of the table here", "run `fencepost unpublish` again. If the pin stays, " + elsewhere
	case x.place == noTable:
		return "no table is published here", elsewhere
	case x.place == inTable && !live:
		return "the table that is published here is another", elsewhere
	case x.place == inTable:
		return "perhaps nobody publishes the table any more", "run `fencepost publish --watch`, which moves the pin once in each retention of the table; or, if nobody will read the table again, `fencepost unpublish`, which is for good"
	case x.format.Files != nil && !x.given():
		return "perhaps nobody publishes its table any more", "run doctor again with --files, to see whether the table is still there"
	}
	return "perhaps nobody publishes its table any more", "first see what is said of the published table"
}

// unpin returns the command that removes the pins of a name. Anybody who may pin chooses the name, so
// it must not end its quotes, and must not steer the terminal.
func unpin(name string) string {
	quoted := "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
	if strings.ContainsFunc(name, func(r rune) bool { return !strconv.IsPrint(r) }) {
		q := strconv.Quote(name) // a shell reads the same escapes between $' and '
		quoted = "$'" + strings.ReplaceAll(q[1:len(q)-1], "'", `\'`) + "'"
	}
	if strings.HasPrefix(name, "-") {
		quoted = "-- " + quoted
	}
	return "`fencepost unpin " + quoted + " URL`"
}
