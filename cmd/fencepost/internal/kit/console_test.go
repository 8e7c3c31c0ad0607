package kit

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// If the total is unknown, the bar shows what is done all the same.
func TestProgressOfUnknownTotal(t *testing.T) {
	var b bytes.Buffer
	c := NewConsole(&b, true, time.Hour)
	synctest.Test(t, func(*testing.T) {
		for n := range int64(100) {
			c.Progress("listing", n*1000, 0, false)
			time.Sleep(time.Second)
		}
		c.Done()
	})
	if s := b.String(); !strings.Contains(s, "listing (99000/-") {
		t.Errorf("%q", s[max(len(s)-300, 0):])
	}
}

// Without a terminal progress is lines: the first one after 5 s, then less and less often.
// Quick work has none.
func TestProgressWithoutTerminal(t *testing.T) {
	var b bytes.Buffer
	synctest.Test(t, func(*testing.T) {
		c := NewConsole(&b, false, 5*time.Second)
		for n := range int64(24 * 60 * 60) {
			c.Progress("appending", n<<20, 0, true)
			time.Sleep(time.Second)
		}
		c.Done()
	})
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) > 160 || len(lines) < 100 || lines[0] != "appending: 5.0 MiB so far" || lines[1] != "appending: 15 MiB so far" {
		t.Errorf("%d lines in a day: %q", len(lines), lines[:min(len(lines), 3)])
	}
	if s := portion(5, 20, false); s != "5 of 20, 25 %" {
		t.Error(s)
	}
}

// TestProgress: a bar on a terminal, which lines for people do not run into, and
// none elsewhere.
func TestProgress(t *testing.T) {
	var b bytes.Buffer
	c := NewConsole(&b, true, time.Hour)
	c.Progress("appending", 10, 100, true)
	time.Sleep(150 * time.Millisecond) // the bar is drawn every 100 ms at most
	c.Progress("appending", 50, 100, true)
	c.Note("a line")
	c.Progress("listing", 5, 0, false)
	c.Done()
	if got := b.String(); !strings.Contains(got, "appending") || !strings.Contains(got, "50%") || !strings.Contains(got, "a line\n") {
		t.Errorf("%q", got)
	}
	var none bytes.Buffer
	c = NewConsole(&none, false, time.Hour)
	c.Progress("appending", 10, 100, true)
	if c.Done() {
		t.Error("lines are said to have stood for the bar")
	}
	if got := none.String(); got != "" {
		t.Errorf("%q", got)
	}
}

// TestDue: lines stand for a bar where there is none, now and then, and not for what
// is soon over.
func TestDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewConsole(io.Discard, false, 5*time.Second)
		due := func(want ...int) {
			t.Helper()
			var got []int
			for second := range 17 {
				if c.Due() {
					got = append(got, second)
				}
				time.Sleep(time.Second)
			}
			if !slices.Equal(got, want) {
				t.Errorf("due after %v seconds, want %v", got, want)
			}
		}
		due(5, 15)
		if !c.Done() {
			t.Error("no line is said to have stood for the bar")
		}
		due(5, 15) // the next begins anew
		c = NewConsole(io.Discard, true, 5*time.Second)
		due()
	})
}
