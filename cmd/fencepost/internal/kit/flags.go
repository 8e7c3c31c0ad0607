package kit

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/xhit/go-str2duration/v2"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/reader"
)

// Checked is a flag that refuses bad values itself, so that the error is wrong usage and
// names the flag. It also refuses a 0 that the library would take for its default.
type Checked struct {
	Kind  string // what the help calls a value
	text  string // the value as it was written
	Parse func(string) error
}

var _ pflag.Value = new(Checked)

// Set implements [pflag.Value].
func (c *Checked) Set(s string) error {
	c.text = s
	return c.Parse(s)
}

func (c *Checked) String() string { return c.text }

// Type implements [pflag.Value].
func (c *Checked) Type() string { return c.Kind }

// BytesVar is a flag with a number of bytes: 16MiB, 500000.
func BytesVar(fl *pflag.FlagSet, to *int64, name, help string) {
	fl.Var(&Checked{Kind: "bytes", Parse: func(s string) error {
		n, err := humanize.ParseBytes(s)
		if err != nil || n == 0 || n > 1<<40 {
			return errors.New("write a number of bytes, such as 500000, 512KiB or 16MiB")
		}
		*to = int64(n)
		return nil
	}}, name, help)
}

// Positive is the least span above 0.
const Positive = time.Nanosecond

// SpanVar is a flag with a length of time: 90s, 36h, 7d, 2w. Without a default it is 0.
func SpanVar(fl *pflag.FlagSet, to *time.Duration, name, def string, least time.Duration, help string) {
	if def != "" {
		*to, _ = span(def)
	}
	fl.Var(&Checked{Kind: "duration", text: def, Parse: func(s string) error {
		d, err := span(s)
		switch {
		case err != nil:
			return err
		case d < least && least == Positive:
			return errors.New("it must be more than 0")
		case d < least && least == 0:
			return errors.New("it must not be negative")
		case d < least:
			return fmt.Errorf("it must be at least %v", least)
		}
		*to = d
		return nil
	}}, name, help)
}

// span parses a length of time.
func span(s string) (time.Duration, error) {
	d, err := str2duration.ParseDuration(s)
	if err != nil {
		return 0, errors.New("write a length of time, such as 90s, 36h, 7d or 2w")
	}
	return d, nil
}

// CountVar is a flag with a number from 1 on.
func CountVar[T int | int64](fl *pflag.FlagSet, to *T, name string, def T, help string) {
	*to = def
	fl.Var(&Checked{Kind: "int", text: fmt.Sprint(def), Parse: func(s string) error {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 1 || int64(T(n)) != n {
			return errors.New("write a number from 1 on")
		}
		*to = T(n)
		return nil
	}}, name, help)
}

// EpochVar is a flag with an epoch.
func EpochVar(fl *pflag.FlagSet, to *fence.Epoch, help string) {
	fl.Var(&Checked{Kind: "epoch", Parse: func(s string) error {
		e, err := strconv.ParseUint(s, 10, 64)
		if err != nil || e == 0 {
			return errors.New("write a number from 1 on, such as \"$FENCEPOST_EPOCH\"")
		}
		*to = fence.Epoch(e)
		return nil
	}}, "epoch", help)
}

// OffsetVar is a flag with the offset of a record.
func OffsetVar(fl *pflag.FlagSet, to *uint64, name, help string) {
	fl.Var(&Checked{Kind: "uint", Parse: func(s string) (err error) {
		if *to, err = strconv.ParseUint(s, 10, 64); err != nil || *to == reader.Oldest {
			return errors.New("write the offset of a record, a number from 0 on")
		}
		return nil
	}}, name, help)
}

// Times is the help about times in flags.
const Times = `Write a TIME as 2026-11-22T09:30:00Z, as 2026-11-22 (midnight UTC), or as 36h or 7d
(so long ago).`

// TimeVar is a flag with a time, as the text above says.
func TimeVar(fl *pflag.FlagSet, to *time.Time, name, help string) {
	fl.Var(&Checked{Kind: "time", Parse: func(s string) (err error) {
		for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
			if *to, err = time.Parse(layout, s); err == nil {
				return nil
			}
		}
		d, err := span(s)
		if err != nil || d < 0 {
			return errors.New("write a time as 2026-11-22T09:30:00Z, 2026-11-22 or, for as long ago, 36h or 7d")
		}
		*to = time.Now().Add(-d)
		return nil
	}}, name, help)
}

// What annotations say of a flag: it goes with another one, or not.
const (
	needs    = "needs"
	excludes = "excludes"
)

// Needs says that some flags mean nothing without another one.
func Needs(c *cobra.Command, flag string, dependent ...string) { annotate(c, needs, flag, dependent) }

// Excludes says that a flag contradicts some others.
func Excludes(c *cobra.Command, flag string, others ...string) { annotate(c, excludes, flag, others) }

func annotate(c *cobra.Command, what, flag string, of []string) {
	for _, name := range of {
		f := c.Flags().Lookup(name)
		if err := c.Flags().SetAnnotation(name, what, append(f.Annotations[what], flag)); err != nil {
			panic(err) // there is no such flag
		}
	}
}

// CheckFlags refuses flags that do not fit together. It also refuses those with an empty text, which must not count as flags
// that are not given: a variable of the shell may be unset.
func CheckFlags(cmd *cobra.Command) (err error) {
	fl := cmd.Flags()
	given := func(name string) bool { return fl.Changed(name) && fl.Lookup(name).Value.String() != "false" }
	fl.Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "string" && f.Value.String() == "" {
			err = Usage("--%s is empty: give it a value, or leave it out", f.Name)
		}
		if !given(f.Name) {
			return
		}
		for _, other := range f.Annotations[needs] {
			if !given(other) {
				err = Usage("--%s goes with --%s, which is not given", f.Name, other)
			}
		}
		for _, other := range f.Annotations[excludes] {
			if given(other) {
				err = Usage("--%s and --%s exclude each other", other, f.Name)
			}
		}
	})
	return err
}

// FlagError says which flag is wrong, and how.
func FlagError(cmd *cobra.Command, err error) error {
	see := "see fencepost help " + Verb(cmd)
	if !cmd.HasParent() {
		see = "see fencepost help"
	}
	var missing *pflag.NotExistError
	var bad *pflag.InvalidValueError
	var empty *pflag.ValueRequiredError
	switch {
	case errors.As(err, &missing):
		// pflag takes several letters after one dash for several flags of one letter.
		dash, name := "-", missing.GetSpecifiedShortnames()
		if name == "" {
			dash, name = "--", missing.GetSpecifiedName()
		}
		name, _, _ = strings.Cut(name, "=")
		return Usage("%s has no flag %s%s%s; %s", Verb(cmd), dash, name, DidYouMean("--", name, flagNames(cmd)), see)
	case errors.As(err, &bad):
		cause := bad.Unwrap()
		if number := (*strconv.NumError)(nil); errors.As(cause, &number) {
			cause = number.Err
		}
		return Usage("--%s is %q: %w; %s", bad.GetFlag().Name, bad.GetValue(), cause, see)
	case errors.As(err, &empty):
		return Usage("--%s needs a value; %s", empty.GetFlag().Name, see)
	}
	return Usage("%w; %s", err, see)
}

// Parent is a command of which only the verbs below it do something.
func Parent(use, short, long string, verbs ...*cobra.Command) *cobra.Command {
	name, _, _ := strings.Cut(use, " ")
	var names []string
	for _, v := range verbs {
		names = append(names, v.Name())
	}
	c := &cobra.Command{Use: use, Short: short, Long: long, Args: cobra.ArbitraryArgs, RunE: func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return Usage("which verb: %s %s? see fencepost help %s", name, strings.Join(names, " or "+name+" "), name)
		}
		return Usage("there is no verb %q of %s%s; see fencepost help %s", args[0], name, DidYouMean(name+" ", args[0], names), name)
	}}
	c.AddCommand(verbs...)
	return c
}

func flagNames(cmd *cobra.Command) []string {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// DidYouMean suggests similar names, as part of a sentence; "" if there are none.
func DidYouMean(dash, name string, names []string) string {
	// Cobra suggests names of commands only, so each name becomes a command.
	like := &cobra.Command{SuggestionsMinimumDistance: min(2, len(name)/2)}
	for _, n := range names {
		like.AddCommand(&cobra.Command{Use: n, Run: func(*cobra.Command, []string) {}})
	}
	found := like.SuggestionsFor(name)
	if len(found) == 0 {
		return ""
	}
	return "; did you mean " + dash + strings.Join(found, " or "+dash) + "?"
}
