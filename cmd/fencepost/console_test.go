package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// If the total is unknown, the bar shows what is done all the same.
func TestProgressOfUnknownTotal(t *testing.T) {
	var b buffer
	c := newConsole(&b, true, time.Hour)
	synctest.Test(t, func(*testing.T) {
		for n := range int64(100) {
			c.progress("listing", n*1000, 0, false)
			time.Sleep(time.Second)
		}
		c.done()
	})
	if s := b.String(); !strings.Contains(s, "listing (99000/-") {
		t.Errorf("%q", s[max(len(s)-300, 0):])
	}
}

// Without a terminal progress is lines: the first one after 5 s, then less and less often.
// Quick work has none.
func TestProgressWithoutTerminal(t *testing.T) {
	var b buffer
	synctest.Test(t, func(*testing.T) {
		c := newConsole(&b, false, 5*time.Second)
		for n := range int64(24 * 60 * 60) {
			c.progress("appending", n<<20, 0, true)
			time.Sleep(time.Second)
		}
		c.done()
	})
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) > 160 || len(lines) < 100 || lines[0] != "appending: 5.0 MiB so far" || lines[1] != "appending: 15 MiB so far" {
		t.Errorf("%d lines in a day: %q", len(lines), lines[:min(len(lines), 3)])
	}
	if s := portion(5, 20, false); s != "5 of 20, 25 %" {
		t.Error(s)
	}
}
