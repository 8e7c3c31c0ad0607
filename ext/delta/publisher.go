package delta

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/store"
)

// Publisher publishes the tables of some logs as one table, in one format or in several. Any number of publishers may
// do that at once, with the same sources or with others. It is for one goroutine.
type Publisher struct {
	opts    settings
	feeds   []*feed
	tables  []*pub // one for each format
	told    map[string]bool
	patient bool // Run waits before it tries a source with an error again, or a checkpoint
	kept    int  // keptEdits, but in tests
}

// settings are the options with what they mean here.
type settings struct {
	Options
	root store.Store
}

// Open makes a publisher, and opens the sources: two GETs for each. A source that cannot be opened
// stops neither Open nor the others: [SourceReport.Err] says why, and each round tries it again.
// The table is created by the first Publish. Errors: [ErrOptions], ctx's.
func Open(ctx context.Context, root store.Store, sources []Source, opts *Options) (*Publisher, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	o := opts.withDefaults()
	p := &Publisher{opts: settings{o, root}, told: map[string]bool{}, kept: keptEdits}
	switch {
	case store.IsNil(root):
		return nil, fmt.Errorf("%w: the store of the table is nil", ErrOptions)
	case len(sources) == 0:
		return nil, fmt.Errorf("%w: there is no source", ErrOptions)
	}
	for i, s := range sources {
		if store.IsNil(s.Log) {
			return nil, fmt.Errorf("%w: the log of source %d is nil: open it with store.Open", ErrOptions, i)
		}
		if s.Files != "" && (!strings.HasSuffix(s.Files, "/") || !plainPath(strings.TrimSuffix(s.Files, "/"))) {
			return nil, fmt.Errorf("%w: Files %q must be empty, or a folder below the table with a slash at its end, of letters, digits, dots, hyphens, underscores and =; no part begins with a dot or an underscore", ErrOptions, s.Files)
		}
		p.feeds = append(p.feeds, &feed{Source: s, name: s.Log.Traits().Name})
	}
	for _, f := range o.Formats {
		t := &pub{Publisher: p, format: f, most: maxVersions}
		var err error
		if t.table, err = f.Open(Place{Root: root, Settle: o.Settle, Clock: o.Clock, Foreign: p.foreign, Failed: o.Hooks.Failed}); err != nil {
			return nil, err
		}
		for _, s := range p.feeds {
			t.sources = append(t.sources, &source{feed: s})
		}
		p.tables = append(p.tables, t)
	}
	jobs, err := p.tables[0].opened(ctx)
	if err != nil {
		return nil, err
	}
	for _, w := range jobs {
		if errors.Is(w.err, ErrOptions) {
			return nil, w.err
		}
	}
	return p, nil
}

// opened opens the sources that are not open yet, and returns a job for each source. The jobs of
// those that cannot be published as they are have an error.
func (p *pub) opened(ctx context.Context) (jobs []*work, err error) {
	now := p.opts.Clock.Now()
	var todo []*work
	for _, s := range p.sources {
		w := &work{source: s}
		jobs = append(jobs, w)
		if w.waiting = p.patient && w.bad != nil && w.wait > 0 && now.Sub(w.tried) < w.wait; w.waiting {
			w.err = w.bad
		} else if w.r == nil {
			todo = append(todo, w)
		}
	}
	if len(todo) > 0 {
		err = each(ctx, todo, func(w *work) error { return w.open(ctx, p) })
		twins(p.feeds)
	}
	for _, w := range jobs {
		if w.twin != "" {
			w.err = fmt.Errorf("%w: %s and %s are the same log, %s: publish only the original", ErrOptions, w.twin, w.name, w.log)
		}
	}
	return jobs, err
}

func (p *Publisher) foreign(key, what string) {
	if !p.told[key] {
		p.told[key] = true
		p.opts.Hooks.Foreign(Foreign{Key: key, What: what})
	}
}

// Publish publishes everything that was acknowledged before the call, and lets go of what no
// version within the retention names. It returns when the tables show that.
//
// A source that cannot be published is left out, and the others are published: see
// [SourceReport]. A pin that cannot be read or released fails nothing: Hooks.Failed is told.
// Errors: [ErrForeign], [ErrDamaged], the store's or ctx's.
func (p *Publisher) Publish(ctx context.Context) (Report, error) {
	return p.round(ctx, func(t *pub, r *Report) (err error) {
		switch now := p.opts.Clock.Now(); {
		case t.untidy():
			if err = t.tidy(ctx); err == nil {
				t.tidied = &now
			}
		case r.Versions == 0:
			err = t.sweep(ctx)
		}
		return err
	})
}

// round publishes each format, and then tidies each that was published. What is wrong with one format stops no other.
func (p *Publisher) round(ctx context.Context, tidy func(*pub, *Report) error) (Report, error) {
	all, errs := p.publish(ctx)
	for i, t := range p.tables {
		if errs[i] == nil {
			errs[i] = tidy(t, &all[i])
		}
	}
	return together(all), one(errs)
}

// one returns the errors as one.
func one(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// together is the report of the first format, with the others.
func together(all []Report) Report {
	r := all[0]
	r.Also = all[1:]
	return r
}

func (p *Publisher) publish(ctx context.Context) (all []Report, errs []error) {
	begun := p.opts.Clock.Now()
	all, errs = make([]Report, len(p.tables)), make([]error, len(p.tables))
	for _, s := range p.feeds {
		s.reads = 0
	}
	loaded := make([]bool, len(p.tables))
	// Each table is loaded before the logs are read, so that all can use what is read.
	for i, t := range p.tables {
		all[i] = Report{Format: t.format.Name(), Version: -1}
		for _, s := range t.sources {
			s.used = 0
		}
		if loaded[i] = t.state == nil; loaded[i] {
			errs[i] = t.load(ctx, false)
		}
	}
	for i, t := range p.tables {
		if errs[i] == nil {
			errs[i] = t.publish(ctx, loaded[i], &all[i])
		}
		if errs[i] == nil {
			t.tell()
		} else {
			t.state = nil // it may be half of something
		}
	}
	p.trim()
	err, r := one(slices.Clone(errs)), together(all)
	p.opts.Hooks.Round(Round{Report: r, Took: p.opts.Clock.Now().Sub(begun), Err: err})
	if err == nil && slices.ContainsFunc(all, func(r Report) bool { return r.Versions > 0 }) {
		p.opts.Hooks.Published(r)
	}
	return all, errs
}

// trim forgets the edits that each table has.
func (p *Publisher) trim() {
	for i, s := range p.feeds {
		least := s.last()
		for _, t := range p.tables {
			if t.state == nil {
				least = 0
			} else if edits, _, _ := t.state.Source(s.log); t.sources[i].bad == nil || edits > 0 {
				least = min(least, edits)
			}
		}
		if n := len(s.edits); n > 0 && least >= s.edits[0].Number {
			s.edits = slices.Clone(s.edits[min(uint64(n), least-s.edits[0].Number+1):])
		}
		if len(s.edits) > p.kept {
			s.edits = nil // a table lacks them for long
		}
	}
}
