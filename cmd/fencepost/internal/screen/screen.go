package screen

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dustin/go-humanize"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/outside"
)

// ANSI colours. A terminal chooses how they look.
const (
	bold  = "1"
	faint = "2"
	red   = "31"
	green = "32"
	amber = "33"
)

// sheet is a text in the making.
type sheet struct {
	b      strings.Builder
	width  int
	colour bool
}

// Render draws states for a terminal so wide and high. Without a height it draws all that there
// is; without colour it uses no escape sequences.
func Render(states []outside.State, width, height int, colour bool) string {
	d := &sheet{width: max(width, 40), colour: colour}
	for i, s := range states {
		if i > 0 {
			d.line("")
		}
		d.state(&s)
	}
	lines := strings.Split(strings.TrimSuffix(d.b.String(), "\n"), "\n")
	if height <= 0 {
		return strings.Join(lines, "\n") + "\n"
	}
	if len(lines) > height {
		lines = append(lines[:height-1], d.paint(faint, "… a higher terminal shows more"))
	}
	const toEnd, below = "\x1b[K", "\x1b[J"
	return strings.Join(lines, toEnd+"\r\n") + toEnd + below
}

func (d *sheet) paint(colour, s string) string {
	if !d.colour || s == "" {
		return s
	}
	return "\x1b[" + colour + "m" + s + "\x1b[0m"
}

// line adds a line, cut to the width. Colour may only be at its ends.
func (d *sheet) line(s string) { d.painted("", s) }

func (d *sheet) painted(colour, s string) {
	s = clean(s)
	if utf8.RuneCountInString(s) > d.width {
		s = string([]rune(s)[:d.width-1]) + "…"
	}
	if colour != "" {
		s = d.paint(colour, s)
	}
	d.b.WriteString(s + "\n")
}

func (d *sheet) state(s *outside.State) {
	d.painted(bold, s.URL)
	answered := "the store has not answered yet"
	if !s.Asked.IsZero() {
		answered = "store answered " + span(s.Now.Sub(s.Asked)) + " ago"
	}
	d.painted(faint, fmt.Sprintf("%s · %s · %s requests", s.Now.Local().Format(time.DateTime), answered, humanize.Comma(int64(s.Requests))))
	now := s.Now
	switch {
	case s.Err != "":
		d.painted(red, s.Err)
		if s.Seen() {
			if !s.Read.IsZero() {
				now = s.Read // not all is known of the time since
			}
			d.painted(amber, "what follows is as it was at the last look")
		}
	case !s.Complete():
		d.painted(amber, "not read yet: all URLs share the requests of a minute")
	}
	if s.Log != nil {
		d.log(s.Log, now)
	}
	if s.Group != nil {
		d.group(s.Group)
	}
	if s.Lock != nil {
		d.lock(s.Lock, now)
	}
}

func (d *sheet) row(name, format string, args ...any) {
	d.line(fmt.Sprintf("%-11s", name) + fmt.Sprintf(format, args...))
}

// log draws the parts of a log that were read.
func (d *sheet) log(l *outside.Log, now time.Time) {
	d.line("")
	d.leader("leader", l.Terms, l.Read.Leader, now)
	if l.Compactor != nil {
		d.leader("compactor", []outside.Term{*l.Compactor}, true, now)
	}
	if l.Read.Manifest {
		d.chain(l, now)
	}
	if l.Read.Pins {
		d.row("pins", "%s", pins(l.Pins, l.PinCount))
	}
	if p := l.Published; p != nil {
		d.row("published", "%s", table(p, l.Behind(), now))
	}
	if l.PublishedErr != "" {
		d.painted(amber, "published  not read: "+l.PublishedErr)
	}
	d.timeline(l.Terms, now)
	d.terms(l.Terms, now)
}

// chain draws the records and where they are.
func (d *sheet) chain(l *outside.Log, now time.Time) {
	d.row("records", "%s, of these %s folded into %d segments%s", comma(l.Records), comma(l.Folded), l.Segments, given(l.First))
	if l.Read.Tail {
		newest := "of an unknown time"
		if !l.Written.IsZero() {
			newest = ago(l.Written, now)
		}
		d.row("tail", "%v; newest object %s", l.Tail, newest)
		atLeast := ""
		if l.More {
			atLeast = "at least "
		}
		d.row("floor", "%v; %s%s objects are not folded, %s records", l.Floor, atLeast, humanize.Comma(int64(l.Unfolded)), comma(l.Records-min(l.Folded, l.Records)))
	}
	if len(l.Manifests) > 0 {
		m := l.Manifests[0]
		by := ""
		if m.By != "" {
			by = fmt.Sprintf(", by %s of epoch %d", m.By, m.Epoch)
		}
		d.row("manifest", "%d, written %s%s", m.Version, ago(m.Written, now), by)
	}
}

// table says what is published of a log.
func table(p *outside.Published, behind uint64, now time.Time) string {
	if p.Gone {
		return fmt.Sprintf("no more; the log was taken out of the Delta table, which has version %d", p.Version)
	}
	lag := "has all folded edits"
	if behind > 0 {
		lag = comma(behind) + " folded edits behind"
	}
	return fmt.Sprintf("Delta version %d, %s edits, the last %s; %s", p.Version, comma(p.Edits), ago(p.At, now), lag)
}

// lock draws a place that has no log.
func (d *sheet) lock(l *outside.Lock, now time.Time) {
	d.line("")
	d.leader("leader", l.Terms, l.Complete, now)
	if len(l.Terms) > 0 && l.Terms[0].Leads() {
		until := l.Terms[0].Until()
		if left := until.Sub(now); left > 0 {
			d.row("lease", "until %s unless it is renewed, in %s", until.Local().Format(time.TimeOnly), span(left))
		} else {
			d.row("lease", "until %s unless it was renewed since the last look", until.Local().Format(time.TimeOnly))
		}
	}
	d.row("log", "none: there is only a lock")
	d.timeline(l.Terms, now)
	d.terms(l.Terms, now)
}

func given(first uint64) string {
	if first == 0 {
		return ""
	}
	return "; those before " + comma(first) + " were given up"
}

func (d *sheet) leader(name string, terms []outside.Term, read bool, now time.Time) {
	head := fmt.Sprintf("%-11s", name)
	switch {
	case !read && len(terms) == 0, len(terms) > 0 && !terms[0].Known:
		d.painted(faint, head+"not read yet")
	case len(terms) == 0:
		d.painted(amber, head+"nobody yet")
	case terms[0].Leads():
		t := terms[0]
		state := ""
		if t.State == "draining" {
			state = ", is leaving"
		}
		d.painted(green, fmt.Sprintf("%s%s, epoch %d, for %s, %s heartbeats%s", head, t.Holder, t.Epoch, span(now.Sub(t.From)), comma(t.Renewals), state))
	default:
		t := terms[0]
		why := t.State
		if t.Reason != "" {
			why = t.Reason
		}
		d.painted(red, fmt.Sprintf("%snobody; %s led in epoch %d, last seen %s: %s", head, t.Holder, t.Epoch, ago(t.To, now), why))
	}
}

func pins(all []outside.Pin, count int) string {
	if len(all) == 0 {
		return "none"
	}
	var names []string
	for _, p := range all {
		switch {
		case p.Holder == "":
			names = append(names, "one that is not read yet")
		case p.Name == "":
			names = append(names, fmt.Sprintf("without a name (version %d)", p.Version))
		default:
			names = append(names, fmt.Sprintf("%s (version %d)", p.Name, p.Version))
		}
	}
	return fmt.Sprintf("%d: %s", max(count, len(all)), strings.Join(names, ", "))
}

// rows is how many holders a timeline shows.
const rows = 6

// timeline draws who led lately, a row for each holder: in the last hour, or since the first term
// if that is less.
func (d *sheet) timeline(terms []outside.Term, now time.Time) {
	hour := time.Minute
	for _, t := range terms {
		if t.Known {
			hour = min(max(hour, now.Sub(t.From)), time.Hour)
		}
	}
	cols := min(d.width-26, 90)
	if cols < 20 {
		return
	}
	var names []string
	lanes := map[string][]rune{}
	for _, t := range terms {
		to := t.To
		if t.Epoch == terms[0].Epoch && t.Leads() {
			to = now
		}
		if !t.Known || to.Before(now.Add(-hour)) {
			continue
		}
		name := short(t.Holder)
		if lanes[name] == nil {
			if len(names) == rows {
				continue
			}
			names = append(names, name)
			lanes[name] = []rune(strings.Repeat("·", cols))
		}
		col := func(at time.Time) int {
			return min(max(int(float64(cols)*float64(at.Sub(now)+hour)/float64(hour)), 0), cols-1)
		}
		from := col(t.From)
		for c := from; c <= col(to); c++ {
			lanes[name][c] = '█'
		}
		lanes[name][from] = '▐'
	}
	if len(names) == 0 {
		return
	}
	d.line("")
	d.line(fmt.Sprintf("%-24s %s", "the last "+span(hour), now.Add(-hour).Local().Format(time.TimeOnly)+strings.Repeat(" ", cols-16)+now.Local().Format(time.TimeOnly)))
	for _, name := range names {
		d.line(fmt.Sprintf("%-24s %s", cut(name, 24), string(lanes[name])))
	}
}

func (d *sheet) terms(terms []outside.Term, now time.Time) {
	if len(terms) < 2 {
		return
	}
	d.line("")
	d.painted(bold, fmt.Sprintf("%8s  %-24s %-19s %9s  %s", "epoch", "holder", "from", "lasted", "how it ended"))
	for i, t := range terms[:min(len(terms), 10)] {
		if !t.Known {
			d.painted(faint, fmt.Sprintf("%8d  not read yet", t.Epoch))
			continue
		}
		to, why := t.To, cmp.Or(t.Reason, t.State)
		switch {
		case i == 0 && t.Leads():
			to, why = now, "leads"
		case t.Leads(): // the last look at it was before its end
			why = "its end was not seen"
		}
		d.line(fmt.Sprintf("%8d  %-24s %-19s %9s  %s", t.Epoch, cut(short(t.Holder), 24), t.From.Local().Format(time.DateTime), span(to.Sub(t.From)), why))
	}
}

func (d *sheet) group(g *outside.Group) {
	d.line("")
	unowned := 0
	for _, o := range g.Owners {
		if o < 0 {
			unowned++
		}
	}
	d.row("group", "%s%d partitions, %d members, assignment %d", name(g.Name), g.Partitions, len(g.Members), g.Assignment)
	state := fmt.Sprintf("%-11s%d moving, %d without an owner, %d given up", "", len(g.Moving), unowned, len(g.GivenUp))
	if len(g.Moving)+unowned+len(g.GivenUp) > 0 {
		d.painted(amber, state)
	} else {
		d.line(state)
	}
	d.line("")
	most := 1
	for _, m := range g.Members {
		most = max(most, m.Owned)
	}
	cols := max(min(d.width-50, 40), 5)
	d.painted(bold, fmt.Sprintf("%-28s %-8s %7s", "member", "state", "owns"))
	for _, m := range g.Members {
		colour := ""
		if m.State() != "live" {
			colour = red
		}
		d.painted(colour, fmt.Sprintf("%-28s %-8s %7d  %s", cut(short(m.Identity), 28), m.State(), m.Owned, strings.Repeat("█", m.Owned*cols/most)))
	}
	if len(g.Moves) > 0 {
		d.line("")
	}
	for _, m := range g.Moves[:min(len(g.Moves), 8)] {
		d.line(fmt.Sprintf("%s  %d from %s to %s", m.At.Local().Format(time.TimeOnly), m.Partitions, who(g, m.From), who(g, m.To)))
	}
}

func who(g *outside.Group, member string) string {
	i := slices.IndexFunc(g.Members, func(m outside.Member) bool { return m.Name == member })
	switch {
	case i >= 0:
		return short(g.Members[i].Identity)
	case member == "":
		return "nobody"
	}
	return cut(member, 8)
}

func name(s string) string {
	if s == "" {
		return ""
	}
	return s + ": "
}

// short leaves out the random part of a default identity: host/pid/uuid.
func short(holder string) string {
	parts := strings.Split(holder, "/")
	if len(parts) == 3 && len(parts[2]) == 36 {
		return parts[0] + "/" + parts[1]
	}
	return holder
}

func cut(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// clean replaces what could move the cursor or turn the direction of the text: names come from the store.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return '?'
		}
		return r
	}, s)
}

func comma(n uint64) string { return humanize.Comma(int64(min(n, 1<<62))) }

func ago(t, now time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return span(now.Sub(t)) + " ago"
}

func span(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < 100*time.Second:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 100*time.Minute:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}
