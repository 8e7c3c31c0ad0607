package kit

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
)

// RecordRange writes a range of records.
func RecordRange(first, end uint64) string {
	if first >= end {
		return "no records"
	}
	return fmt.Sprintf("%s, %d to %d", Plural(end-first, "record"), first, end-1)
}

// When writes a time for people, in this machine's zone and with it.
func When(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05Z07:00") }

// Size writes a number of bytes.
func Size(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

// Plural writes a number of things: 1 record, 2 records.
func Plural[T int | uint64](n T, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %s", n, english.PluralWord(2, thing, ""))
}

// Brief writes a length of time with no more digits than people read. Clocks that differ
// must not make it negative.
func Brief(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d >= time.Minute:
		d = d.Round(time.Second)
	case d >= time.Second:
		d = d.Round(10 * time.Millisecond)
	case d >= time.Millisecond:
		d = d.Round(time.Millisecond)
	}
	return d.String()
}

// Printable writes what others have chosen, such as a name, so that it cannot steer a terminal: it
// escapes control characters, line breaks, and marks that turn the direction of text.
func Printable(s string) string {
	var b strings.Builder
	for _, r := range s {
		if strconv.IsPrint(r) {
			b.WriteRune(r)
		} else {
			q := strconv.QuoteRune(r)
			b.WriteString(q[1 : len(q)-1])
		}
	}
	return b.String()
}

// HarmlessJSON is the same JSON without characters that could steer a terminal.
func HarmlessJSON(b []byte) []byte {
	if !bytes.ContainsFunc(b, steers) {
		return b
	}
	var out []byte
	for _, r := range string(b) {
		switch {
		case !steers(r):
			out = utf8.AppendRune(out, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

func steers(r rune) bool { return r >= 0x7f && !strconv.IsPrint(r) }

// safe is a text of this program in which names that others have chosen may stand: [printable], but for line breaks.
func safe(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = Printable(l)
	}
	return strings.Join(lines, "\n")
}

// Aligned is what fill writes, its columns one below the other.
func Aligned(fill func(w io.Writer)) []byte {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fill(w)
	_ = w.Flush()
	return b.Bytes()
}

// Rows is a table of names, and of what is said of each.
func Rows(fill func(row func(name, format string, args ...any))) []byte {
	return Aligned(func(w io.Writer) {
		fill(func(name, format string, args ...any) {
			fmt.Fprintf(w, "%s\t%s\n", name, Printable(fmt.Sprintf(format, args...)))
		})
	})
}
