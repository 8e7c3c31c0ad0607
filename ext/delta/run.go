package delta

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
)

const (
	// calm is how many times longer the silence has lasted than the next pause.
	calm = 8
	// slowest is how many times Options.Every the pause becomes at most.
	slowest = 10
	// crowded is how many others a publisher reckons with at most.
	crowded = 16
)

// Run publishes, and goes on to publish what is committed later, until ctx ends. Then it returns
// nil, or the error of the store that it was waiting for. Any number of publishers can run at once.
//
// It goes on after errors of the store, and tells Hooks.Failed. It returns [ErrForeign],
// [ErrDamaged], or [ErrUnpublished] if all sources are.
func (p *Publisher) Run(ctx context.Context) error {
	var quiet, failures time.Duration
	tidied := make(map[*pub]clock.Instant, len(p.tables))
	p.patient = true
	defer func() { p.patient = false }()
	for {
		begun := p.opts.Clock.Now()
		r, err := p.round(ctx, func(t *pub, r *Report) error {
			last, was := tidied[t]
			if every := p.opts.Retention / holdsPerRetention; !was || begun.Sub(last) > every || t.due.Load() {
				tidied[t] = begun
				return t.tidy(ctx)
			}
			if r.Versions == 0 {
				return t.sweep(ctx)
			}
			return nil
		})
		if ctx.Err() != nil {
			return ended(ctx, err)
		}
		if errors.Is(err, ErrForeign) || errors.Is(err, ErrDamaged) {
			return err
		}
		if bad := r.Err(); bad != nil && !slices.ContainsFunc(r.sources(), func(s SourceReport) bool { return !errors.Is(s.Err, ErrUnpublished) }) {
			return bad
		}
		pause := min(max(quiet/calm, p.opts.Every), slowest*p.opts.Every)
		quiet += pause
		if r.Versions > 0 || slices.ContainsFunc(r.Also, func(r Report) bool { return r.Versions > 0 }) {
			quiet = 0
		}
		failures /= 2
		if err != nil {
			failures = min(4*failures+p.opts.Every, time.Minute)
		}
		if err = errors.Join(err, p.later()); err != nil {
			p.opts.Hooks.Failed(err)
		}
		if clock.Sleep(ctx, p.opts.Clock, pause+failures) != nil {
			return ended(ctx, err)
		}
	}
}

// ended is nil, or what the store has answered, when Run ends with its context.
func ended(ctx context.Context, err error) error {
	if _, waited := errors.AsType[*store.Error](err); waited && errors.Is(err, context.Cause(ctx)) {
		return err
	}
	return nil
}

// later decides when the sources with errors are tried again, each for itself: the others do not
// wait for them. It returns the errors that are new.
func (p *Publisher) later() error {
	var all []error
	for _, t := range p.tables {
		all = append(all, t.later()...)
	}
	return errors.Join(all...)
}

func (p *pub) later() (all []error) {
	for _, s := range p.sources {
		switch {
		case s.bad == nil:
			s.wait = 0
		case !s.waiting:
			s.wait = min(2*s.wait+p.opts.Every, time.Minute)
			s.tried = p.opts.Clock.Now()
			if s.news {
				all = append(all, fmt.Errorf("%s: %w", s.name, s.bad))
			}
		}
		s.news = false
	}
	return all
}

// yield waits a moment if others publish too, the longer the more there seem to be. So not all
// of them compute the same version at the same time.
func (p *pub) yield(ctx context.Context) error {
	if p.rivals == 0 {
		return nil
	}
	return clock.Sleep(ctx, p.opts.Clock, time.Duration(rand.Int64N(int64(p.rivals)*int64(p.opts.Every))))
}

// Status reports how far the sources are published, and changes nothing. It tells Hooks.Foreign what
// other programs have left in the tables and beside the files. Errors: [ErrNoTable], [ErrForeign],
// [ErrDamaged], the store's or ctx's. It lists the table: a LIST for each 1,000 files, or so.
func (p *Publisher) Status(ctx context.Context) (Report, error) {
	for _, s := range p.feeds {
		s.reads = 0
	}
	var all []Report
	for _, t := range p.tables {
		r := Report{Format: t.format.Name(), Version: -1}
		t.state = nil
		err := t.load(ctx, false)
		if err == nil && t.state.Version() < 0 {
			err = t.noTable()
		}
		if err != nil {
			return r, err
		}
		jobs, err := t.opened(ctx)
		if err != nil {
			return r, err
		}
		if err := each(ctx, jobs, func(w *work) error { return w.look(ctx, t) }); err != nil {
			return r, err
		}
		t.report(&r, jobs)
		all = append(all, r)
	}
	return together(all), p.strangers(ctx)
}

func (p *pub) noTable() error {
	return fmt.Errorf("%w: %s has no %s; publish it first", ErrNoTable, p.opts.root.Traits().Name, p.table.First())
}

// strangers tells of objects in the table's root that no log has written.
func (p *Publisher) strangers(ctx context.Context) error {
	for _, s := range p.feeds {
		if s.r == nil || s.own && s.Files != "" {
			return nil // the root has more than files: logs, or nobody knows what
		}
	}
	for info, err := range store.ListAll(ctx, p.opts.root, "", nil, p.opts.Settle) {
		if err != nil {
			return err
		}
		key := info.Key
		if !inFolder(key) && !fileName.MatchString(key) {
			p.foreign(key, "no log writes a file with such a name, and no version of the table has it; it is left alone: delete it if no program needs it")
		}
	}
	return nil
}

// Unpublish takes the sources out of the tables for good: a last version removes their files,
// and their logs are let go. What engines read at older versions may vanish at once. The table
// is not deleted, and its place cannot be used for these logs again.
//
// A source that cannot be opened stays in the table, with its pins. The others are taken out, and
// the error names it. Errors: [ErrNoTable], [ErrForeign], [ErrDamaged], those of such sources, the
// store's or ctx's. After an error it can be called again.
func (p *Publisher) Unpublish(ctx context.Context) (Report, error) {
	all, errs := make([]Report, len(p.tables)), make([]error, len(p.tables))
	for i, t := range p.tables {
		all[i] = Report{Format: t.format.Name(), Version: -1}
		errs[i] = t.unpublish(ctx, &all[i])
		t.state = nil
	}
	return together(all), one(errs)
}

func (p *pub) unpublish(ctx context.Context, r *Report) error {
	jobs, err := p.opened(ctx)
	if err != nil {
		return err
	}
	for range rounds {
		p.state = nil
		if err := p.load(ctx, false); err != nil {
			return err
		}
		if p.state.Version() < 0 {
			return p.noTable()
		}
		c := p.farewell(jobs)
		if len(c.Parts) == 0 {
			if p.owed.new {
				p.settle(ctx)
			}
			return p.letGo(ctx, jobs, r)
		}
		if _, err := p.create(ctx, c, r); err != nil {
			return err
		}
	}
	return fmt.Errorf("delta: others were quicker %d times in a row; stop the publishers of this table first", rounds)
}

// farewell removes all files of the sources.
func (p *pub) farewell(jobs []*work) *Change {
	c := &Change{Operation: "unpublish"}
	files := map[fence.ID][]Removed{}
	for path, log := range p.state.Files() {
		files[log] = append(files[log], Removed{Path: path})
	}
	for _, w := range jobs {
		if w.err != nil {
			continue
		}
		// guard:delta-farewell. Unpublish creates a version that takes the log out of the table,
		// also if no version names the log yet.
		//
		//mutant:replace h.Gone { => h.Gone || h.Manifest == 0 {
		edits, h, _ := p.state.Source(w.log)
		if h.Gone {
			continue
		}
		h.Gone = true
		slices.SortFunc(files[w.log], func(a, b Removed) int { return cmp.Compare(a.Path, b.Path) })
		c.Parts = append(c.Parts, Part{Log: w.log, Name: w.name, Edits: edits, Hold: h, Remove: files[w.log]})
	}
	return c
}

// letGo releases all pins of the table on the sources. No version names their files any more,
// and no publisher goes on.
func (p *pub) letGo(ctx context.Context, jobs []*work, r *Report) error {
	r.Version, r.Files, r.Others = p.state.Version(), p.state.Len(), p.others()
	err := each(ctx, jobs, func(w *work) error {
		err := w.r.Unpin(ctx, p.pinName())
		if errors.Is(err, reader.ErrNoPin) {
			return nil
		}
		return err
	})
	for _, w := range jobs {
		r.Sources = append(r.Sources, SourceReport{Log: w.log, Name: w.name, Err: w.err})
	}
	return cmp.Or(err, r.Err())
}
