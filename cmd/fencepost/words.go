package main

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
)

// when writes a time for people, in this machine's zone and with it.
func when(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05Z07:00") }

// size writes a number of bytes.
func size(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

// plural writes a number of things: 1 record, 2 records.
func plural[T int | uint64](n T, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %s", n, english.PluralWord(2, thing, ""))
}

// brief writes a length of time with no more digits than people read. Clocks that differ
// must not make it negative.
func brief(d time.Duration) string {
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

// printable writes what others have chosen, such as a name, so that it cannot steer a terminal: it
// escapes control characters, line breaks, and marks that turn the direction of text.
func printable(s string) string {
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

// safe is a text of this program in which names that others have chosen may stand: [printable], but for line breaks.
func safe(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = printable(l)
	}
	return strings.Join(lines, "\n")
}

// aligned is what fill writes, its columns one below the other.
func aligned(fill func(w io.Writer)) []byte {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fill(w)
	_ = w.Flush()
	return b.Bytes()
}

// rows is a table of names, and of what is said of each.
func rows(fill func(row func(name, format string, args ...any))) []byte {
	return aligned(func(w io.Writer) {
		fill(func(name, format string, args ...any) {
			fmt.Fprintf(w, "%s\t%s\n", name, printable(fmt.Sprintf(format, args...)))
		})
	})
}
