package delta

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/sink"
	"github.com/fencepost/fencepost/store"
)

// DefaultRetention is how long a version of the table can be read after the next one came.
const DefaultRetention = 7 * 24 * time.Hour

// Options of a publisher. The zero value works, and so does nil.
type Options struct {
	// Formats are those in which the table is published, each with the same files; default [Lake].
	Formats []Format
	// Name of the table, for people. Only the first publisher of a table sets it, and so
	// with Partition and Retention. The others take what the table says.
	Name string
	// Partition are the columns by which the files are partitioned.
	Partition []Column
	// Retention is how long a version can be read after the next one came; default
	// [DefaultRetention]. Until then its files stay in the store. At least an hour.
	Retention time.Duration
	// Every is how often [Publisher.Run] looks for edits; default 100 ms, at least 1 ms.
	Every time.Duration
	// Hooks are told what happens.
	Hooks Hooks
	// Settle tunes retries.
	Settle *store.SettleOptions
	// Clock is the machine's by default.
	Clock clock.Clock
	// Logger gets a warning when a source is left out, and when the reason changes. Silent by
	// default.
	Logger *zap.Logger
}

// Hooks are called by the goroutine that publishes, which waits for them. Each may be nil.
type Hooks struct {
	// Round is told each round, also one that has published nothing or has failed.
	Round func(Round)
	// Published is told each round that has published something.
	Published func(Report)
	// Foreign is told what another program has left in the Delta log, and by [Publisher.Status] also
	// what it has left beside the files.
	Foreign func(Foreign)
	// Failed is told the errors after which [Publisher.Run] goes on: that of a source once,
	// until it changes. It is also told of each checkpoint that could not be written, and of pins
	// that could not be read or released, by Publish too: a later round tries again.
	Failed func(error)
}

// Round is one look at the sources and the table, by [Publisher.Publish] or [Publisher.Run].
type Round struct {
	// Report says what was done until the round ended, and what is published.
	Report Report
	// Took is the time of the round. Conflicts are waited for within it.
	Took time.Duration
	// Err is why the round failed; nil if it did not. A source that is left out is no failure
	// of the round: see [SourceReport.Err].
	Err error
}

// Foreign is something in the table's store that no part of Fencepost has written.
type Foreign struct {
	Key, What string
}

const (
	minRetention = time.Hour
	defaultEvery = 100 * time.Millisecond
	mostEvery    = 24 * time.Hour
)

// Validate returns all that is wrong with the options, as [Open] does. Each fault is
// [ErrOptions].
func (o *Options) Validate() error {
	v := o.withDefaults()
	var faults []error
	if v.Retention < minRetention {
		faults = append(faults, fmt.Errorf("%w: Retention %v is shorter than %v: engines that read the table need its files for as long as a query takes", ErrOptions, v.Retention, minRetention))
	}
	if v.Every < time.Millisecond || v.Every > mostEvery {
		faults = append(faults, fmt.Errorf("%w: Every %v must be 1ms to %v", ErrOptions, v.Every, mostEvery))
	}
	if err := v.Settle.Validate(); err != nil {
		faults = append(faults, fmt.Errorf("%w: Settle: %w", ErrOptions, err))
	}
	seen := map[string]bool{}
	for _, f := range v.Formats {
		if seen[f.Name()] {
			faults = append(faults, fmt.Errorf("%w: Formats has %s twice", ErrOptions, f.Name()))
		}
		seen[f.Name()] = true
	}
	clear(seen)
	for _, c := range v.Partition {
		if err := c.validate(); err != nil {
			faults = append(faults, err)
		}
		if seen[strings.ToLower(c.Name)] {
			faults = append(faults, fmt.Errorf("%w: Partition has the column %s twice", ErrOptions, c.Name))
		}
		seen[strings.ToLower(c.Name)] = true
	}
	return errors.Join(faults...)
}

func (o *Options) withDefaults() Options {
	v := *cmp.Or(o, &Options{})
	v.Retention = cmp.Or(v.Retention, DefaultRetention)
	v.Every = cmp.Or(v.Every, defaultEvery)
	if len(v.Formats) == 0 {
		v.Formats = []Format{Lake()}
	}
	v.Clock = clock.Or(v.Clock)
	v.Logger = sink.Logger(v.Logger).Named("delta")
	if v.Hooks.Round == nil {
		v.Hooks.Round = func(Round) {}
	}
	if v.Hooks.Published == nil {
		v.Hooks.Published = func(Report) {}
	}
	if v.Hooks.Foreign == nil {
		v.Hooks.Foreign = func(Foreign) {}
	}
	if v.Hooks.Failed == nil {
		v.Hooks.Failed = func(error) {}
	}
	return v
}

// Source is a log whose table is published.
type Source struct {
	// Log is where the log is.
	Log store.Store
	// Files is where the log's files are, below the root of the Delta table: the file with
	// the key file/1/x is Files + "1/x" there. Empty, or ends in a slash. Leave it out for a
	// log that keeps its files in a second store (manifest.Format.Files): that store is the
	// root of the table then, and any number of such logs can be one table.
	Files string
}

// Beside returns the place of the Delta table of one log that keeps its files in its own store:
// their folder.
func Beside(log store.Store) (table store.Store, source Source, err error) {
	table, err = store.Sub(log, strings.TrimSuffix(filePrefix, "/"))
	return table, Source{Log: log}, err
}

// filePrefix begins the keys of a log's files.
const filePrefix = "file/"

// path returns where a file of the log is, below the root of the table.
func (s *Source) path(key string) string { return s.Files + strings.TrimPrefix(key, filePrefix) }

// Report says what one round of a publisher has done, or what is published.
type Report struct {
	// Format is the table's.
	Format string
	// Version is the newest version of the table, -1 if there is none.
	Version int64
	// Versions is how many this round has created, and Tries how often it tried to create
	// one and somebody else was quicker.
	Versions, Tries int
	// Files is how many files are active.
	Files int
	// Others are the logs in the table that are not among the publisher's sources. Other publishers
	// may have them, as those of other partitions. Or nobody has: see [Publisher.Unpublish].
	Others []fence.ID
	// Sources are in the order in which they were given.
	Sources []SourceReport
	// Also are the reports of the other formats, in the order of Options.Formats.
	Also []Report
}

// SourceReport is what a [Report] says of one source.
type SourceReport struct {
	// Log is the log's id, zero as long as the log could not be opened. Name is where it is.
	Log  fence.ID
	Name string
	// Edits is how many edits the log has, and Published how many of them are in the table.
	Edits, Published uint64
	// Manifest is the version of the log's manifest that the table holds.
	Manifest uint64
	// Err says why the source is left out; nil if it is not. What is in the table of a source
	// that is left out stays there, and stays held. It is manifest.ErrNotInitialized of a log
	// that is not there yet.
	Err error
}

// Err joins the errors of all sources, in all formats.
func (r *Report) Err() error {
	var all []error
	told := map[string]bool{}
	for _, s := range r.sources() {
		if s.Err == nil {
			continue
		}
		if err := fmt.Errorf("%s: %w", s.Name, s.Err); !told[err.Error()] {
			all = append(all, err)
			told[err.Error()] = true
		}
	}
	return errors.Join(all...)
}

// sources are those of all formats.
func (r *Report) sources() []SourceReport {
	all := slices.Clone(r.Sources)
	for _, o := range r.Also {
		all = append(all, o.Sources...)
	}
	return all
}
