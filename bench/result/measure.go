package result

import (
	"flag"
	"fmt"
	"os"
)

// Mode is what a test does with its measures.
type Mode string

// What a test may do: measure in small to see that it works, or in full, and then write
// the results or compare with them.
const (
	Small Mode = ""
	Print Mode = "print"
	Write Mode = "write"
	Check Mode = "check"
)

// MeasureFlag is the flag -measure of a test.
func MeasureFlag() *Mode {
	m := Small
	flag.Func("measure", "measure in full and print, write or check the results", func(s string) error {
		switch m = Mode(s); m {
		case Print, Write, Check:
			return nil
		}
		return fmt.Errorf("%q is none of print, write, check", s)
	})
	return &m
}

// Finish prints the page of a test and does what the mode says with it. Dir is the
// folder of the results.
func (p *Page) Finish(m Mode, dir string) error {
	if m == Small {
		return nil
	}
	if _, err := os.Stdout.WriteString(p.Table()); err != nil {
		return err
	}
	switch m {
	case Write:
		return p.Write(dir)
	case Check:
		worse, err := p.Worse(os.Stdout, dir, true)
		if err == nil && worse {
			err = fmt.Errorf("%s: some are worse than in the results", p.name)
		}
		return err
	}
	return nil
}
