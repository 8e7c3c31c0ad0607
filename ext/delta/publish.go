package delta

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
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
	// checkpointEvery is after how many versions there is a checkpoint.
	checkpointEvery = 100
	// holdsPerRetention is how many pins are taken in the time of a retention at most. They are half as many
	// if others publish too, or if rounds are further apart than the grace period: see hold.
	holdsPerRetention = 16
	// listsPerRetention is how often a publisher lists all pins of a log in that time. Meanwhile
	// it releases those that it knows.
	listsPerRetention = 2
	// rounds bounds how often a publisher begins again because others were quicker.
	rounds = 100
)

// Publisher publishes the tables of some logs as one Delta table. Any number of publishers may
// do that at once, with the same sources or with others. It is for one goroutine.
type Publisher struct {
	opts    Options
	table   *table
	sources []*source
	state   *state        // the newest that is known, or nil
	looked  clock.Instant // when it was the newest
	parsed  parsed        // of it
	told    map[string]bool
	rivals  int         // how many others seem to publish too
	due     atomic.Bool // there is something to let go of; sources set it at the same time
	patient bool        // Run waits before it tries a source with an error again, or a checkpoint
	owed    owed
	tidied  *clock.Instant // when Publish last let go of everything old; nil before
	listed  *listing       // of the whole Delta log, by the last load of this round; or nil
	needed  needed         // as of the last time that something was let go of; nil before
	// every and most are checkpointEvery and maxVersions, but in tests.
	every int64
	most  int
}

// owed is a checkpoint that could not be written.
type owed struct {
	is    bool
	tried clock.Instant
	wait  time.Duration // before Run tries again
}

// Open makes a publisher, and opens the sources: two GETs for each. A source that cannot be opened
// stops neither Open nor the others: [SourceReport.Err] says why, and each round tries it again.
// The Delta table is created by the first Publish. Errors: [ErrOptions], ctx's.
func Open(ctx context.Context, root store.Store, sources []Source, opts *Options) (*Publisher, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	o := opts.withDefaults()
	p := &Publisher{opts: o, told: map[string]bool{}, every: checkpointEvery, most: maxVersions}
	switch {
	case store.IsNil(root):
		return nil, fmt.Errorf("%w: the store of the table is nil", ErrOptions)
	case len(sources) == 0:
		return nil, fmt.Errorf("%w: there is no source", ErrOptions)
	}
	p.table = &table{st: root, settle: o.Settle, clock: o.Clock, foreign: p.foreign}
	for i, s := range sources {
		if store.IsNil(s.Log) {
			return nil, fmt.Errorf("%w: the log of source %d is nil: open it with store.Open", ErrOptions, i)
		}
		if s.Files != "" && (!strings.HasSuffix(s.Files, "/") || !plainPath(strings.TrimSuffix(s.Files, "/"))) {
			return nil, fmt.Errorf("%w: Files %q must be empty, or a folder below the table with a slash at its end, of letters, digits, dots, hyphens, underscores and =; no part begins with a dot or an underscore", ErrOptions, s.Files)
		}
		p.sources = append(p.sources, &source{Source: s, name: s.Log.Traits().Name})
	}
	jobs, err := p.opened(ctx)
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
func (p *Publisher) opened(ctx context.Context) (jobs []*work, err error) {
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
		twins(p.sources)
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
// version within the retention names. It returns when the table shows that.
//
// A source that cannot be published is left out, and the others are published: see
// [SourceReport]. A pin that cannot be read or released fails nothing: Hooks.Failed is told.
// Errors: [ErrForeign], [ErrDamaged], the store's or ctx's.
func (p *Publisher) Publish(ctx context.Context) (Report, error) {
	r, err := p.publish(ctx)
	switch now := p.opts.Clock.Now(); {
	case err != nil:
	case p.untidy():
		if err = p.tidy(ctx); err == nil {
			p.tidied = &now
		}
	case r.Versions == 0:
		err = p.sweep(ctx)
	}
	return r, err
}

func (p *Publisher) publish(ctx context.Context) (r Report, err error) {
	r = Report{Version: -1}
	begun := p.opts.Clock.Now()
	p.listed = nil
	defer func() {
		if err == nil {
			p.tell()
		}
		p.opts.Hooks.Round(Round{Report: r, Took: p.opts.Clock.Now().Sub(begun), Err: err})
		if err != nil {
			p.state = nil // it may be half of something
		} else if r.Versions > 0 {
			p.opts.Hooks.Published(r)
		}
	}()
	loaded := p.state == nil
	if loaded {
		if err = p.load(ctx); err != nil {
			return r, err
		}
	}
	if p.owed.is && p.state.version > 0 && (!p.patient || p.opts.Clock.Now().Sub(p.owed.tried) >= p.owed.wait) {
		p.checkpoint(ctx)
	}
	waited := false
	for range rounds {
		// The table was loaded before. A log that is read after it has all that is published.
		jobs, err := p.plan(ctx)
		if err != nil {
			return r, err
		}
		todo := slices.DeleteFunc(slices.Clone(jobs), func(w *work) bool { return w.err != nil || len(w.steps) == 0 })
		if len(todo) > 0 && p.rivals > 0 && !waited {
			// Somebody else may do it meanwhile.
			if err := p.yield(ctx); err != nil {
				return r, err
			}
			if err = p.load(ctx); err != nil {
				return r, err
			}
			if waited, loaded = true, true; p.report(&r, jobs) {
				return r, nil
			}
			continue
		}
		waited = false
		if len(todo) == 0 && !loaded {
			// The logs have nothing new, but others may have changed the table.
			newer, err := p.newer(ctx)
			if err == nil && newer {
				err = p.load(ctx)
			}
			if err != nil {
				return r, err
			}
			if loaded = true; newer {
				continue
			}
		}
		if err := p.advance(ctx, todo, &r); err != nil {
			return r, err
		}
		// guard:delta-shown. A publisher reports edits as published only when a load that began after
		// the create shows them.
		//
		//mutant:replace p.state, err = p.reload(ctx); err != nil => false
		if len(todo) > 0 {
			if p.state, err = p.reload(ctx); err != nil {
				return r, err
			}
			loaded = true
		}
		if p.report(&r, jobs) {
			return r, nil
		}
	}
	return r, fmt.Errorf("delta: others were quicker %d times in a row; run fewer publishers of this table", rounds)
}

// report fills in what is published, and returns whether that is all that was to be.
func (p *Publisher) report(r *Report, jobs []*work) (done bool) {
	r.Version, r.Files, r.Others, r.Sources, done = p.state.version, len(p.state.files), p.others(), nil, true
	for _, w := range jobs {
		published, h, _ := p.state.source(w.log)
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
func (p *Publisher) others() []fence.ID {
	all := p.state.holds()
	maps.DeleteFunc(all, func(log fence.ID, h hold) bool {
		return h.Gone || slices.ContainsFunc(p.sources, func(s *source) bool { return s.log == log })
	})
	return slices.SortedFunc(maps.Keys(all), func(a, b fence.ID) int { return bytes.Compare(a[:], b[:]) })
}

// tell logs what has changed since the last round: sources that were left out, and those that are
// published again.
func (p *Publisher) tell() {
	for _, s := range p.sources {
		why := ""
		if s.bad != nil {
			why = s.bad.Error()
		}
		switch {
		case why == s.told:
			continue
		case why != "":
			p.opts.Logger.Warn("a source is left out of the table; the others are published", zap.String("source", s.name), zap.Error(s.bad))
		default:
			p.opts.Logger.Info("a source that was left out is published again", zap.String("source", s.name))
		}
		s.told, s.news = why, true
	}
}

// work is what a round has to do for one source.
type work struct {
	*source
	steps []step
	idle  bool // the only step has no edit: it moves the hold
	need  *schema
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
func (p *Publisher) plan(ctx context.Context) ([]*work, error) {
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
func (p *Publisher) advance(ctx context.Context, todo []*work, r *Report) error {
	m, err := p.metaData(todo)
	if err != nil {
		return err
	}
	// A schema with more columns is a version of its own, before the files that need it.
	// The first version is a schema only, and is loaded before anything is pinned for the table:
	// pins are called by the id of a table that is there, so that others find those of a
	// publisher that dies.
	switch {
	case m != nil && p.state.version < 0:
		_, err := p.create(ctx, "FENCEPOST CREATE", []action{{Protocol: ours()}, {Meta: m}}, r)
		return err
	case m != nil:
		if created, err := p.create(ctx, "FENCEPOST SCHEMA", []action{{Meta: m}}, r); !created {
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
		var actions []action
		now := p.opts.Clock.Wall().UnixMilli()
		for _, part := range parts {
			actions = append(actions, p.actions(part, now)...)
		}
		created, err := p.create(ctx, "FENCEPOST PUBLISH", actions, r)
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
func (p *Publisher) claim(todo []*work) {
	by := map[string]*work{}
	for _, w := range todo {
		for _, st := range w.steps {
			for _, f := range st.add {
				path := w.path(f.Key)
				other := ""
				if have := p.state.files[path]; have != nil && have.log != w.log.String() {
					other = have.log
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

func (p *Publisher) create(ctx context.Context, operation string, actions []action, r *Report) (bool, error) {
	created, err := p.table.create(ctx, p.state, operation, actions)
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
	if p.state.version%p.every == 0 && p.state.version > 0 {
		p.owed = owed{}
		p.checkpoint(ctx)
	}
	return true, nil
}

// checkpoint writes a checkpoint of the newest version. The version is there, with or without it:
// so the round goes on after an error, and later rounds try again.
func (p *Publisher) checkpoint(ctx context.Context) {
	err := p.table.checkpoint(ctx, p.state, retentionOf(p.state.meta, p.opts.Retention))
	if err == nil {
		p.owed = owed{}
		p.due.Store(true)
		return
	}
	p.owed = owed{is: true, tried: p.opts.Clock.Now(), wait: min(2*p.owed.wait+p.opts.Every, time.Minute)}
	p.opts.Hooks.Failed(fmt.Errorf("delta: the checkpoint of version %d is not written: %w", p.state.version, err))
}

// parsed is the schema of the newest metaData that is known. Sources ask for it at the same time.
type parsed struct {
	mu     sync.Mutex
	of     *metaData
	schema *schema
	err    error
}

// schema returns the table's schema and the columns by which it is partitioned, or those that it
// will get.
func (p *Publisher) schema() (have *schema, by []string, err error) {
	if m := p.state.meta; m != nil {
		p.parsed.mu.Lock()
		defer p.parsed.mu.Unlock()
		if p.parsed.of != m {
			p.parsed.schema, p.parsed.err = decodeSchema(m.Schema)
			p.parsed.of = m
		}
		return p.parsed.schema, m.Partition, p.parsed.err
	}
	for _, c := range p.opts.Partition {
		by = append(by, c.Name)
	}
	return newSchema(), by, nil
}

// types returns the types of the columns by which the table is partitioned, or will be.
func (p *Publisher) types() (map[string]string, error) {
	if m := p.state.meta; m != nil {
		have, _, err := p.schema()
		if err != nil {
			return nil, err
		}
		return m.partitions(have), nil
	}
	columns := map[string]string{}
	for _, c := range p.opts.Partition {
		columns[c.Name] = c.Type
	}
	return columns, nil
}

// metaData returns the table's metaData if it must change: there is none, or some source needs
// more columns. A source that does not fit gets an error.
func (p *Publisher) metaData(todo []*work) (*metaData, error) {
	have, by, err := p.schema()
	if err != nil {
		return nil, err
	}
	all := have
	for _, w := range todo {
		err := w.need.unpartitioned(by)
		if err == nil {
			var more *schema
			// guard:delta-schema-grows. A new schema has all columns of the one before it.
			//
			//mutant:replace all.merge(w.need); err == nil => newSchema().merge(w.need); err == nil
			if more, err = all.merge(w.need); err == nil {
				all = more
			}
		}
		w.err = err
	}
	switch {
	case p.state.meta == nil && len(all.fields) == 0:
		// Every source has only edits without files: there is no schema yet.
		for _, w := range todo {
			if w.err == nil {
				w.err = fmt.Errorf("%w: %s has no file yet, and the table no schema", ErrSource, w.name)
			}
		}
		return nil, nil
	case p.state.meta == nil:
		return p.newTable(all), nil
	case all == have:
		return nil, nil
	}
	m := *p.state.meta
	m.Schema = all.String()
	return &m, nil
}

func (p *Publisher) newTable(s *schema) *metaData {
	m := &metaData{
		ID: uuid.NewString(), Name: p.opts.Name, Format: provider{Provider: "parquet", Options: map[string]string{}}, Partition: []string{},
		Config: configOf(p.opts.Retention), CreatedTime: p.opts.Clock.Wall().UnixMilli(),
	}
	all := newSchema(s.fields...)
	for _, c := range p.opts.Partition {
		name := c.Type
		if name == "" {
			name = "string"
		}
		all.add(column(c.Name, dataType{Name: name}))
		m.Partition = append(m.Partition, c.Name)
	}
	m.Schema = all.String()
	return m
}

func retentionOf(m *metaData, otherwise time.Duration) time.Duration {
	var n int
	if m == nil {
		return otherwise
	}
	if _, err := fmt.Sscanf(m.Config[retentionKey], "interval %d seconds", &n); err != nil || n <= 0 {
		return otherwise
	}
	return time.Duration(n) * time.Second
}

const retentionKey = "delta.deletedFileRetentionDuration"

func configOf(retention time.Duration) map[string]string {
	span := fmt.Sprintf("interval %d seconds", int64(retention/time.Second))
	return map[string]string{
		retentionKey: span, "delta.logRetentionDuration": span, "delta.enableExpiredLogCleanup": "false",
		"delta.checkpointInterval": fmt.Sprint(checkpointEvery),
	}
}
