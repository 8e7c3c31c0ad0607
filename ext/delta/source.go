package delta

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
)

// feed is a log that is published, and what is known of its edits. All formats share it.
type feed struct {
	Source
	name string
	// r, log and table are nil and zero until the source can be opened.
	r     *reader.Reader
	log   fence.ID
	table *reader.Table
	// own: the log keeps its files in its own store, and not in a second one.
	own bool
	// twin is the name of another source with the same log, if there is one.
	twin string
	// edits are the newest ones, in order and without a gap.
	edits []reader.Edit
	// readOnce: the log was read. warm: it had been before the last read, which could take a pin.
	readOnce, warm bool
	// reads counts how often the log was read in this round.
	reads int
	// footers are those of files that are not published yet, by key.
	footers map[string]*Footer
}

// source is a log in the table of one format.
type source struct {
	*feed
	// used is the newest of the reads of this round that the format may use: the table was loaded before it.
	used int
	// checked is a place that the log was found to contain.
	checked reader.Place
	// pin holds the version pinned, if this publisher took a pin that no version names yet.
	pin manifest.Pin
	// pins are those on this log that are known. All were listed last at listed, and that was tried last
	// at sought.
	pins           []manifest.Pin
	listed, sought *clock.Instant
	// named: there may be a version that names pin, for the answer to its create was lost.
	named bool
	// renewed is when this publisher last tried to move the hold without an edit, if ever.
	renewed *clock.Instant
	// bad is why the source was left out of the last round. A publisher that goes on tries it
	// again when wait has passed since tried; waiting says that it has not.
	bad     error
	told    string // the text of the error that was told last; empty if none was
	news    bool   // told has changed since Run has looked
	wait    time.Duration
	tried   clock.Instant
	waiting bool
	// trouble counts looks in a row that found something gone.
	trouble int
}

// step is a change of the table: what some edits of one source do.
type step struct {
	add    []manifest.File
	remove []string // keys
	edits  uint64   // published after it
	place  reader.Place
	offset uint64 // records of the log before the last edit, if it is known
}

// open opens the log.
func (s *source) open(ctx context.Context, p *pub) error {
	f, err := manifest.ReadFormat(ctx, s.Log, p.opts.Settle)
	if err == nil && f.Backup {
		err = fmt.Errorf("%w: %s", manifest.ErrBackup, s.name)
	}
	if err != nil {
		return err
	}
	ro, files := &reader.Options{Settle: p.opts.Settle, Clock: p.opts.Clock}, s.Files
	if f.Files != nil {
		if files != "" {
			return fmt.Errorf("%w: %s keeps its files in a second store, where they have names of their own: leave out Files", ErrOptions, s.name)
		}
		ro.Files, files = p.opts.root, strings.TrimSuffix(f.FileName(filePrefix+"x"), "x")
	}
	r, err := reader.Open(ctx, s.Log, ro)
	if err != nil {
		return err
	}
	s.r, s.log, s.table, s.Files, s.own = r, f.Log, r.Table(), files, f.Files == nil
	return nil
}

// twins finds the sources that are the same log. They may have been opened one after the other, when
// the first one was published already.
//
// guard:delta-twin. Of sources that have the same log id, none is published, because the table has one
// place for each log id, up to which that log is published.
//
//mutant:replace by[s.log]; other != nil => by[s.log]; other == s
func twins(sources []*feed) {
	by := map[fence.ID]*feed{}
	for _, s := range sources {
		if s.r == nil {
			continue
		}
		if other := by[s.log]; other != nil {
			other.twin, s.twin = s.name, other.name
		}
		by[s.log] = s
	}
}

// total is how many edits the log has, as far as is known.
func (s *feed) total() uint64 {
	if s.table == nil {
		return 0
	}
	return s.table.Edits()
}

// read reads on to the end of the log. If edits have come and it is time for a new hold, it also pins the
// version of the log that was known before. So the pin takes no request to show that it holds.
func (s *source) read(ctx context.Context, p *pub) error {
	return s.readAndPin(ctx, func(news []reader.Edit) string {
		if len(news) == 0 || p.rivals > 0 || s.pin.Key != "" || !p.holdDue(s, holdsPerRetention) {
			return "" // others may publish the edits: then this publisher needs no pin
		}
		return p.pinName()
	})
}

func (s *source) readAndPin(ctx context.Context, want func([]reader.Edit) string) error {
	// guard:table-read-after. A format uses a read of the log that another format has made only if its own table was
	// loaded before that read.
	//
	//mutant:replace s.used < s.reads => s.reads > 0
	if s.used < s.reads {
		s.used = s.reads
		return nil
	}
	news, pin, err := s.table.ReadAndPin(ctx, want)
	if err != nil {
		return err
	}
	s.reads++
	s.used = s.reads
	s.warm, s.readOnce = s.readOnce, true
	if pin.Key != "" {
		s.pin, s.named, s.pins = pin, false, append(s.pins, pin)
	}
	if len(news) == 0 || len(s.edits) == 0 || news[0].Number != s.edits[len(s.edits)-1].Number+1 {
		if len(news) > 0 || s.table.Edits() > s.last() {
			s.edits = nil
		}
	}
	s.edits = append(s.edits, news...)
	return nil
}

// look reads the log and checks what is published against it.
func (s *source) look(ctx context.Context, p *pub) error {
	if err := s.readAndPin(ctx, func([]reader.Edit) string { return "" }); err != nil {
		return err
	}
	return s.check(ctx, p)
}

// last is the number of the newest edit that is known, or 0.
func (s *feed) last() uint64 {
	if len(s.edits) == 0 {
		return 0
	}
	return s.edits[len(s.edits)-1].Number
}

// plan returns the steps from what a state of the Delta table has of the source to the end of
// the log. The log must have been read after that state.
func (s *source) plan(ctx context.Context, p *pub) ([]step, error) {
	if err := s.check(ctx, p); err != nil {
		return nil, err
	}
	published, _, known := p.state.Source(s.log)
	total := s.table.Edits()
	if published == total {
		return nil, nil // also of a log without an edit
	}
	// Each edit on its own, if all are there that are not published.
	if n := total - published; uint64(len(s.edits)) >= n {
		steps := make([]step, 0, n)
		for _, e := range s.edits[uint64(len(s.edits))-n:] {
			steps = append(steps, step{add: e.Change.Add, remove: e.Change.Remove, edits: e.Number, place: e.After, offset: e.Offset})
		}
		if !known {
			return []step{merge(steps)}, nil // the table begins with one version
		}
		return steps, nil
	}
	all, err := s.difference(ctx, p.state)
	return []step{all}, err
}

// check checks that the log has what is published, and that the table is the log's.
func (s *source) check(ctx context.Context, p *pub) error {
	published, h, known := p.state.Source(s.log)
	if !h.Gone {
		if err := s.alone(p, known); err != nil {
			return err
		}
	}
	switch total := s.table.Edits(); {
	case h.Gone:
		return fmt.Errorf("%w: %s was taken out of the table; publish it to a new place", ErrUnpublished, s.name)
	case published > total:
		// A log that has fewer edits than are published was restored
		// from a backup, and the publisher stops. Without this check: an operator restores a
		// log; its publisher takes the table for published; new edits are not in the table
		// until there are as many as before, and then they are mixed with the lost ones.
		return s.restored(fmt.Sprintf("it has %d edits, and %d are published", total, published))
	case known:
		return s.contains(ctx, h.place())
	}
	return nil
}

// alone checks that no other log is published where only this log keeps its files.
//
// guard:delta-one-log. A table in a log's own store has the files of that log only.
//
//mutant:replace !s.own => true
func (s *source) alone(p *pub, known bool) error {
	if !s.own {
		return nil // logs that share a second store are one table
	}
	other := ""
	switch {
	case s.Files == "":
		if all := p.others(); len(all) > 0 {
			other = all[0].String()
		}
	case !known: // tables of several such logs have a folder for each
		for path, log := range p.state.Files() {
			if log != s.log && strings.HasPrefix(path, s.Files) {
				other = log.String()
			}
		}
	}
	if other == "" {
		return nil
	}
	return fmt.Errorf("%w: the table in %s has files of log %s, and %s is log %s, which would add its own: create this log at a new place, and publish it there; or, if the old table is no longer needed, delete all objects below %s there, and start the publisher again",
		ErrSource, p.opts.root.Traits().Name, other, s.name, s.log, path.Dir(p.table.First())+"/")
}

func (s *source) restored(why string) error {
	return fmt.Errorf("%w: %s was restored from a backup, %s: give the restored log a new id, and publish it to a new place", ErrSource, s.name, why)
}

// contains checks that the log has what is published.
//
// guard:delta-place. If a log's chain lacks the slot or the seal up to which the table says that the
// log is published, the publisher stops.
//
//mutant:replace err == nil && !ok => err == nil && !ok && false
func (s *source) contains(ctx context.Context, p reader.Place) error {
	if p == s.checked {
		return nil
	}
	ok, err := s.table.Contains(ctx, p)
	if err == nil && !ok {
		return s.restored(fmt.Sprintf("and what is published up to %v is not in it", p.Slot))
	}
	if err == nil {
		s.checked = p
	}
	return err
}

// difference compares the live files with the active ones.
func (s *source) difference(ctx context.Context, st State) (step, error) {
	d := step{edits: s.table.Edits(), place: s.table.End()}
	active := map[string]bool{}
	for path, log := range st.Files() {
		if log == s.log {
			active[path] = true
		}
	}
	for f, err := range s.table.Files(ctx) {
		if err != nil {
			return step{}, err
		}
		path := s.path(f.Key)
		if !active[path] {
			d.add = append(d.add, f)
		}
		delete(active, path)
	}
	for _, path := range slices.Sorted(maps.Keys(active)) {
		key, ok := strings.CutPrefix(path, s.Files)
		if !ok {
			return step{}, fmt.Errorf("%w: the table has the file %s of %s, which is not below %q: Source.Files was another one before: give that one", ErrSource, path, s.name, s.Files)
		}
		d.remove = append(d.remove, filePrefix+key)
	}
	return d, nil
}

// merge makes one step of several.
func merge(steps []step) step {
	all := steps[len(steps)-1]
	added, removed := map[string]manifest.File{}, map[string]bool{}
	var order []string
	for _, s := range steps {
		for _, f := range s.add {
			added[f.Key] = f
			order = append(order, f.Key)
		}
		for _, key := range s.remove {
			if _, ok := added[key]; ok {
				delete(added, key)
			} else {
				removed[key] = true
			}
		}
	}
	all.add, all.remove = nil, slices.Sorted(maps.Keys(removed))
	for _, key := range order {
		if f, ok := added[key]; ok {
			all.add = append(all.add, f)
		}
	}
	return all
}

// inspect reads the footers of the files to be added, and returns the schema that all need. It also
// returns the steps: those from a file that cannot be in the table to the edit that removes it are
// one.
func (s *source) inspect(ctx context.Context, p *pub, steps []step) ([]step, *Schema, error) {
	bad, err := s.readFooters(ctx, p, steps)
	if err != nil {
		return nil, nil, err
	}
	for {
		need, at, key, err := s.fit(p, steps, bad)
		if err == nil {
			return steps, need, nil
		}
		gone := slices.IndexFunc(steps[at:], func(st step) bool { return slices.Contains(st.remove, key) })
		if gone < 0 {
			return nil, nil, err
		}
		one := merge(steps[at : at+gone+1])
		steps = slices.Concat(steps[:at], []step{one}, steps[at+gone+1:])
	}
}

// readFooters reads those that are not known yet. It returns what is wrong with files, by key.
func (s *source) readFooters(ctx context.Context, p *pub, steps []step) (bad map[string]error, other error) {
	var todo []manifest.File
	for _, st := range steps {
		todo = append(todo, st.add...)
	}
	bad = map[string]error{}
	types := p.types()
	for _, f := range todo {
		if err := partitioned(types, s.path(f.Key), f); err != nil {
			bad[f.Key] = err
		}
	}
	found, failed := make([]*Footer, len(todo)), make([]error, len(todo))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i, f := range todo {
		if found[i] = s.footers[f.Key]; found[i] != nil || bad[f.Key] != nil {
			continue
		}
		g.Go(func() error {
			found[i], failed[i] = readFooter(ctx, p.opts.root, s.path(f.Key), f, p.opts.Settle)
			return nil
		})
	}
	_ = g.Wait() // it has none
	// Also after an error: the next try reads only the footers that are missing.
	s.footers = map[string]*Footer{}
	for i, f := range todo {
		switch err := failed[i]; {
		case found[i] != nil:
			s.footers[f.Key] = found[i]
		case errors.Is(err, ErrSource) || errors.Is(err, ErrSchema):
			bad[f.Key] = err
		case err != nil:
			other = err
		}
	}
	return bad, other
}

// fit returns the schema that the files of the steps need, or the first file that cannot be in the
// table, with the index of its step.
func (s *source) fit(p *pub, steps []step, bad map[string]error) (need *Schema, at int, key string, err error) {
	table, by := p.schema()
	need = newSchema()
	var last *Footer
	for i, st := range steps {
		for _, f := range st.add {
			if err := bad[f.Key]; err != nil {
				return nil, i, f.Key, err
			}
			own := s.footers[f.Key]
			if last != nil && own.text == last.text {
				own.Schema = last.Schema // most files are alike: keep one of their schemas
				continue
			}
			last = own
			if err = own.Schema.unpartitioned(by); err == nil {
				table, err = table.merge(own.Schema)
			}
			// All formats are asked, before the first of them has a file that another one cannot have.
			for _, t := range p.tables {
				if err == nil {
					err = t.format.Check(table, by, own)
				}
			}
			if err == nil {
				need, err = need.merge(own.Schema)
			}
			if err != nil {
				return nil, i, f.Key, fmt.Errorf("%s: %w; "+removeIt, s.path(f.Key), err)
			}
		}
	}
	return need, 0, "", nil
}
