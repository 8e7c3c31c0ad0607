package main

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

	"github.com/fencepost/fencepost/reader"
)

// Flags refuse bad values themselves, so that the error is wrong usage and names the flag.
// They also refuse a 0 that the library would take for its default.

// bytesValue is a flag with a number of bytes: 16MiB, 500000.
type bytesValue int

var _ pflag.Value = new(bytesValue)

func (v *bytesValue) Set(s string) error {
	n, err := humanize.ParseBytes(s)
	if err != nil || n == 0 || n > 1<<40 {
		return errors.New("write a number of bytes, such as 500000, 512KiB or 16MiB")
	}
	*v = bytesValue(n)
	return nil
}

func (v *bytesValue) String() string {
	if *v == 0 {
		return ""
	}
	return fmt.Sprint(int(*v))
}

func (v *bytesValue) Type() string { return "bytes" }

// spanValue is a flag with a length of time: 90s, 36h, 7d, 2w.
type spanValue struct {
	to    *time.Duration
	least time.Duration
}

var _ pflag.Value = new(spanValue)

// positive is the least span above 0.
const positive = time.Nanosecond

func spanVar(fl *pflag.FlagSet, to *time.Duration, name string, def, least time.Duration, help string) {
	*to = def
	fl.Var(&spanValue{to, least}, name, help)
}

func (v *spanValue) Set(s string) error {
	d, err := span(s)
	switch {
	case err != nil:
		return err
	case d < v.least && v.least == positive:
		return errors.New("it must be more than 0")
	case d < v.least && v.least == 0:
		return errors.New("it must not be negative")
	case d < v.least:
		return fmt.Errorf("it must be at least %v", v.least)
	}
	*v.to = d
	return nil
}

// span parses a length of time.
func span(s string) (time.Duration, error) {
	d, err := str2duration.ParseDuration(s)
	if err != nil {
		return 0, errors.New("write a length of time, such as 90s, 36h, 7d or 2w")
	}
	return d, nil
}

func (v *spanValue) String() string {
	const day = 24 * time.Hour
	switch {
	case v.to == nil || *v.to == 0:
		return ""
	case *v.to%day == 0:
		return fmt.Sprintf("%dd", *v.to/day)
	}
	return v.to.String()
}

func (v *spanValue) Type() string { return "duration" }

// countValue is a flag with a number from 1 on.
type countValue[T int | int64] struct{ to *T }

var _ pflag.Value = new(countValue[int])

func countVar[T int | int64](fl *pflag.FlagSet, to *T, name string, def T, help string) {
	*to = def
	fl.Var(&countValue[T]{to}, name, help)
}

func (v *countValue[T]) Set(s string) error {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 || int64(T(n)) != n {
		return errors.New("write a number from 1 on")
	}
	*v.to = T(n)
	return nil
}

func (v *countValue[T]) String() string {
	if v.to == nil || *v.to == 0 {
		return ""
	}
	return fmt.Sprint(*v.to)
}

func (v *countValue[T]) Type() string { return "int" }

// fromFlag is an offset; [reader.Oldest] if it was not given.
type fromFlag uint64

var _ pflag.Value = new(fromFlag)

func (f *fromFlag) Set(s string) error {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return errors.New("write the offset of a record, a number from 0 on")
	}
	*f = fromFlag(n)
	return nil
}

func (f *fromFlag) String() string {
	if uint64(*f) == reader.Oldest {
		return ""
	}
	return strconv.FormatUint(uint64(*f), 10)
}

func (f *fromFlag) Type() string { return "uint" }

// times is the help about times in flags.
const times = `Write a TIME as 2026-11-22T09:30:00Z, as 2026-11-22 (midnight UTC), or as 36h or 7d
(so long ago).`

// moment parses the time in a flag.
func moment(name, s string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	if d, err := span(s); err == nil && d >= 0 {
		return time.Now().Add(-d), nil
	}
	return time.Time{}, usage("--%s is %q; write a time as 2026-11-22T09:30:00Z, 2026-11-22 or, for as long ago, 36h or 7d", name, s)
}

// flagError says which flag is wrong, and how.
func flagError(cmd *cobra.Command, err error) error {
	see := "see fencepost help " + verb(cmd)
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
		return usage("%s has no flag %s%s%s; %s", verb(cmd), dash, name, didYouMean("--", name, flagNames(cmd)), see)
	case errors.As(err, &bad):
		cause := bad.Unwrap()
		if number := (*strconv.NumError)(nil); errors.As(cause, &number) {
			cause = number.Err
		}
		return usage("--%s is %q: %w; %s", bad.GetFlag().Name, bad.GetValue(), cause, see)
	case errors.As(err, &empty):
		return usage("--%s needs a value; %s", empty.GetFlag().Name, see)
	}
	return usage("%w; %s", err, see)
}

func flagNames(cmd *cobra.Command) []string {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// didYouMean suggests similar names, as part of a sentence; "" if there are none.
func didYouMean(dash, name string, names []string) string {
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
