package delta

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
)

const (
	// maxVersions is how many versions a round creates for as many edits. More edits share
	// one version, or a few: see runs.
	maxVersions = 64
	// holdsPerRetention is how many pins are taken in the time of a retention at most. They are half as many
	// if others publish too, or if rounds are further apart than the grace period: see hold.
	holdsPerRetention = 16
	// listsPerRetention is how often a publisher lists all pins of a log in that time. Meanwhile
	// it releases those that it knows.
	listsPerRetention = 2
	// rounds bounds how often a publisher begins again because others were quicker.
	rounds = 100
	// keptEdits is how many edits of a log are kept that a table lacks. A table that lacks more is compared with the live files.
	keptEdits = 1024
)

// pub is the table of one format that a publisher writes.
type pub struct {
	*Publisher
	format  Format
	table   Table
	sources []*source
	state   State         // the newest that is known, or nil
	looked  clock.Instant // when it was the newest
	rivals  int           // how many others seem to publish too
	due     atomic.Bool   // there is something to let go of; sources set it at the same time
	owed    owed
	tidied  *clock.Instant // when Publish last let go of everything old; nil before
	needed  needed         // as of the last time that something was let go of; nil before
	most    int            // maxVersions, but in tests
}

// owed is an object, such as a checkpoint, that is not written yet.
type owed struct {
	is    bool
	tried clock.Instant
	wait  time.Duration // before Run tries again
	new   bool          // it was not tried yet
}

// load loads the table. What was read of the logs before is too old for the state then.
func (p *pub) load(ctx context.Context, whole bool) error {
	p.looked = p.opts.Clock.Now()
	s, err := p.table.Load(ctx, p.state, whole)
	if err != nil {
		return err
	}
	p.state = s
	for _, s := range p.sources {
		s.used = s.reads
	}
	return nil
}

// newer reports whether there may be a later version than the one that is known. One that came since the last look cannot have
// been deleted already: it stays for a retention.
func (p *pub) newer(ctx context.Context) (bool, error) {
	now := p.opts.Clock.Now()
	if m := p.state.Meta(); m == nil || now.Sub(p.looked) >= m.Retention/2 {
		return true, nil
	}
	newer, err := p.table.Newer(ctx, p.state)
	if err == nil && !newer {
		p.looked = now
	}
	return newer, err
}

// settle writes what the newest version owes, such as a checkpoint. The version is there, with or without it:
// so the round goes on after an error, and later rounds try again.
func (p *pub) settle(ctx context.Context) {
	done, err := p.table.Settle(ctx, p.state)
	if err == nil {
		if p.owed = (owed{}); done {
			p.due.Store(true)
		}
		return
	}
	p.owed = owed{is: true, tried: p.opts.Clock.Now(), wait: min(2*p.owed.wait+p.opts.Every, time.Minute)}
	p.opts.Hooks.Failed(err)
}

// overdue reports whether what is owed is to be written now.
func (p *pub) overdue() bool {
	return p.owed.is && p.state.Version() >= 0 && (!p.patient || p.opts.Clock.Now().Sub(p.owed.tried) >= p.owed.wait)
}

// publish is a round. Loaded says that the state was loaded in this round.
func (p *pub) publish(ctx context.Context, loaded bool, r *Report) (err error) {
	if p.overdue() {
		p.settle(ctx)
	}
	waited := false
	for range rounds {
		// The table was loaded before. A log that is read after it has all that is published.
		jobs, err := p.plan(ctx)
		if err != nil {
			return err
		}
		todo := slices.DeleteFunc(slices.Clone(jobs), func(w *work) bool { return w.err != nil || len(w.steps) == 0 })
		if len(todo) > 0 && p.rivals > 0 && !waited {
			// Somebody else may do it meanwhile.
			if err := p.yield(ctx); err != nil {
				return err
			}
			if err = p.load(ctx, false); err != nil {
				return err
			}
			if waited, loaded = true, true; p.report(r, jobs) {
				return nil
			}
			continue
		}
		waited = false
		if len(todo) == 0 && !loaded {
			// The logs have nothing new, but others may have changed the table.
			newer, err := p.newer(ctx)
			if err == nil && newer {
				err = p.load(ctx, false)
			}
			if err != nil {
				return err
			}
			if loaded = true; newer {
				continue
			}
		}
		if err := p.advance(ctx, todo, r); err != nil {
			return err
		}
		// guard:delta-shown. A publisher reports edits as published only when a load that began after
		// the create shows them.
		//
		//mutant:replace err := p.load(ctx, p.due.Load()); err != nil => err := error(nil); err != nil
		if len(todo) > 0 {
			// If there is something to let go of, tidy needs the whole listing.
			if err := p.load(ctx, p.due.Load()); err != nil {
				return err
			}
			loaded = true
		}
		if p.report(r, jobs) {
			if p.owed.new && p.overdue() {
				p.settle(ctx)
			}
			return nil
		}
	}
	return fmt.Errorf("delta: others were quicker %d times in a row; run fewer publishers of this table", rounds)
}

// report fills in what is published, and returns whether that is all that was to be.
func (p *pub) report(r *Report, jobs []*work) (done bool) {
	r.Version, r.Files, r.Others, r.Sources, done = p.state.Version(), p.state.Len(), p.others(), nil, true
	for _, w := range jobs {
		published, h, _ := p.state.Source(w.log)
		if w.bad = w.err; errors.Is(w.err, errAgain) {
			w.bad = nil
		}
		r.Sources = append(r.Sources, SourceReport{Log: w.log, Name: w.name, Edits: w.total(), Published: published, Manifest: h.Manifest, Err: w.err})
		if errors.Is(w.err, errAgain) || w.err == nil && len(w.steps) > 0 && published < w.steps[len(w.steps)-1].edits {
			done = false
		}
	}
	return done
}

// others returns the logs in the table that are not among the sources, in order.
func (p *pub) others() []fence.ID {
	all := p.state.Holds()
	maps.DeleteFunc(all, func(log fence.ID, h Hold) bool {
		return h.Gone || slices.ContainsFunc(p.sources, func(s *source) bool { return s.log == log })
	})
	return slices.SortedFunc(maps.Keys(all), func(a, b fence.ID) int { return bytes.Compare(a[:], b[:]) })
}

// tell logs what has changed since the last round: sources that were left out, and those that are
// published again.
func (p *pub) tell() {
	for _, s := range p.sources {
		why := ""
		if s.bad != nil {
			why = s.bad.Error()
		}
		switch {
		case why == s.told:
			continue
		case why != "":
			p.opts.Logger.Warn("a source is left out of the table; the others are published", zap.String("format", p.format.Name()), zap.String("source", s.name), zap.Error(s.bad))
		default:
			p.opts.Logger.Info("a source that was left out is published again", zap.String("format", p.format.Name()), zap.String("source", s.name))
		}
		s.told, s.news = why, true
	}
}

// work is what a round has to do for one source.
type work struct {
	*source
	steps []step
	idle  bool // the only step has no edit: it moves the hold
	need  *Schema
	err   error
}

// errAgain: something was folded or deleted while it was read, so begin again.
var errAgain = errors.New("delta: what was read has moved")

// each does something for some sources at the same time. An error leaves a source behind, and
// never stops the others.
func each(ctx context.Context, todo []*work, f func(*work) error) error {
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, w := range todo {
		g.Go(func() error {
			if w.err == nil {
				w.err = f(w)
			}
			return nil
		})
	}
	_ = g.Wait() // it has none
	return context.Cause(ctx)
}

// plan reads the sources and compares them with the table.
func (p *pub) plan(ctx context.Context) ([]*work, error) {
	jobs, err := p.opened(ctx)
	if err != nil {
		return jobs, err
	}
	return jobs, each(ctx, jobs, func(w *work) (err error) {
		if err = w.read(ctx, p); err == nil {
			w.steps, err = w.plan(ctx, p)
		}
		if err == nil && len(w.steps) == 0 {
			w.steps = p.renew(w.source)
			w.idle = len(w.steps) > 0
		}
		if err == nil && len(w.steps) > 0 {
			w.steps, w.need, err = w.inspect(ctx, p, w.steps)
		}
		if errors.Is(err, reader.ErrGone) || errors.Is(err, store.ErrNotFound) {
			return w.moved(err)
		}
		if errors.Is(err, ErrUnpublished) && w.pin.Key != "" {
			// It was taken after the others were released, and nobody else would find it.
			if gone := w.r.Release(ctx, w.pin); gone != nil {
				return errors.Join(err, gone)
			}
			w.pin = manifest.Pin{}
		}
		w.trouble = 0
		return err
	})
}

// moved returns errAgain if another look may help.
func (s *source) moved(err error) error {
	// What the edits in memory name may be gone, if somebody has let go of the holds.
	s.edits = nil
	if s.trouble++; s.trouble < 4 {
		return errAgain
	}
	return fmt.Errorf("%w: what the log of %s names is gone: %w; run `fencepost verify`, which names each such object: restore it, or if it is a file, "+removeIt, ErrSource, s.name, err)
}

// advance creates the versions for some steps, until all are there or somebody else was quicker.
func (p *pub) advance(ctx context.Context, todo []*work, r *Report) error {
	m := p.metaData(todo)
	// A schema with more columns is a version of its own, before the files that need it.
	// The first version is a schema only, and is loaded before anything is pinned for the table:
	// pins are called by the id of a table that is there, so that others find those of a
	// publisher that dies.
	switch {
	case m != nil && p.state.Version() < 0:
		if err := p.unread(); err != nil {
			return err
		}
		_, err := p.create(ctx, &Change{Operation: "create", Meta: m}, r)
		return err
	case m != nil:
		if created, err := p.create(ctx, &Change{Operation: "schema", Meta: m}, r); !created {
			return err
		}
	}
	p.claim(todo)
	todo = slices.DeleteFunc(slices.Clone(todo), func(w *work) bool { return w.err != nil })
	if err := each(ctx, todo, func(w *work) error { return p.hold(ctx, w) }); err != nil {
		return err
	}
	todo = slices.DeleteFunc(todo, func(w *work) bool { return w.err != nil || w.idle && w.pin.Key == "" })
	for _, parts := range p.versions(todo) {
		c := &Change{Operation: "publish"}
		for _, part := range parts {
			c.Parts = append(c.Parts, p.change(part))
		}
		created, err := p.create(ctx, c, r)
		for _, part := range parts {
			switch {
			case created && part.names():
				part.pin, part.named = manifest.Pin{}, false // the table has it now
				p.due.Store(true)
			case err != nil && part.names():
				part.named = true // it may have come in all the same
			}
		}
		if !created {
			return err
		}
	}
	return nil
}

// claim leaves out the sources that add a file of another log. The others are published.
func (p *pub) claim(todo []*work) {
	by := map[string]*work{}
	for _, w := range todo {
		for _, st := range w.steps {
			for _, f := range st.add {
				path := w.path(f.Key)
				other := ""
				if log, active := p.state.Owner(path); active && log != w.log {
					other = log.String()
				} else if by[path] != nil && by[path] != w {
					other = by[path].log.String()
				}
				if other != "" && w.err == nil {
					w.err = fmt.Errorf("%w: file %s is one of log %s already: one of the two is a copy of the other, which belongs to another table", ErrSource, path, other)
				}
				by[path] = w
			}
		}
	}
}

func (p *pub) create(ctx context.Context, c *Change, r *Report) (bool, error) {
	created, err := p.table.Create(ctx, p.state, c)
	if err != nil {
		return false, err
	}
	if !created {
		r.Tries++
		p.rivals = min(2*p.rivals+1, crowded)
		return false, nil
	}
	r.Versions++
	p.rivals = p.rivals * 3 / 4
	if owes, wait := p.table.Owes(p.state); owes {
		if p.owed = (owed{is: wait > 0, tried: p.opts.Clock.Now(), wait: wait, new: true}); wait == 0 {
			p.settle(ctx)
		}
	}
	return true, nil
}

// schema returns the table's schema and the columns by which it is partitioned, or those that it
// will get.
func (p *pub) schema() (have *Schema, by []string) {
	if m := p.state.Meta(); m != nil {
		return m.Schema, m.Partition
	}
	for _, c := range p.partition() {
		by = append(by, c.Name)
	}
	return newSchema(), by
}

// model is what the table in another format says of itself, or nil.
func (p *pub) model() *Meta {
	for _, t := range p.tables {
		if t.state != nil && t.state.Meta() != nil {
			return t.state.Meta()
		}
	}
	return nil
}

// partition returns the columns by which a new table is partitioned.
//
// guard:table-same-partitions. A new table has the partitions of the one in another format, if that is there.
//
//mutant:replace m == nil => m == nil || m != nil
func (p *pub) partition() []Column {
	m := p.model()
	if m == nil {
		return p.opts.Partition
	}
	types := m.types()
	all := make([]Column, 0, len(m.Partition))
	for _, name := range m.Partition {
		all = append(all, Column{Name: name, Type: types[name]})
	}
	return all
}

// unread returns an error if the table of another format may be there, and is not known.
func (p *pub) unread() error {
	if i := slices.IndexFunc(p.tables, func(t *pub) bool { return t.state == nil }); i >= 0 {
		return fmt.Errorf("delta: the table %s is not created as long as the table %s cannot be read, whose partitions it gets", p.format.Name(), p.tables[i].format.Name())
	}
	return nil
}

// types returns the types of the columns by which the table is partitioned, or will be.
func (p *pub) types() map[string]string {
	if m := p.state.Meta(); m != nil {
		return m.types()
	}
	columns := map[string]string{}
	for _, c := range p.partition() {
		columns[c.Name] = c.Type
	}
	return columns
}

// metaData returns the table's Meta if it must change: there is none, or some source needs
// more columns. A source that does not fit gets an error.
func (p *pub) metaData(todo []*work) *Meta {
	have, by := p.schema()
	all := have
	for _, w := range todo {
		err := w.need.unpartitioned(by)
		if err == nil {
			var more *Schema
			// guard:delta-schema-grows. A new schema has all columns of the one before it.
			//
			//mutant:replace all.merge(w.need); err == nil => newSchema().merge(w.need); err == nil
			if more, err = all.merge(w.need); err == nil {
				all = more
			}
		}
		w.err = err
	}
	m := p.state.Meta()
	switch {
	case m == nil && len(all.fields) == 0:
		// Every source has only edits without files: there is no schema yet.
		for _, w := range todo {
			if w.err == nil {
				w.err = fmt.Errorf("%w: %s has no file yet, and the table no schema", ErrSource, w.name)
			}
		}
		return nil
	case m == nil:
		return p.newTable(all)
	case all == have:
		return nil
	}
	next := *m
	next.Schema = all
	return &next
}

func (p *pub) newTable(s *Schema) *Meta {
	m := &Meta{ID: uuid.NewString(), Name: p.opts.Name, Schema: newSchema(s.fields...), Retention: p.opts.Retention}
	if other := p.model(); other != nil {
		m.Name, m.Retention = other.Name, other.Retention
	}
	for _, c := range p.partition() {
		m.Schema.add(column(c.Name, DataType{Name: cmp.Or(c.Type, "string")}))
		m.Partition = append(m.Partition, c.Name)
	}
	return m
}
