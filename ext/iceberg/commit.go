package iceberg

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
)

const (
	// fanIn is how many manifests of a log with fewer than 10, 100, … files are merged into one.
	fanIn = 10
	// maxFiles is how many files a manifest has at most when it is merged.
	maxFiles = 10_000
)

// draft is a version that is being made.
type draft struct {
	*table
	s       *state
	version int64
	number  *int64 // the version, for entries: these stay in memory, and a pointer into the draft would keep all of it
	doc     *metadata
	codec   *codec
	bodies  map[string][]byte // manifests and the list, by key
	now     []*manifest       // those of the version
	gone    map[*manifest]bool
	counts  map[string]int64 // of the summary
	same    bool             // no row changes
	fresh   []*manifest
}

// Create is [delta.Table.Create].
func (t *table) Create(ctx context.Context, known delta.State, c *delta.Change) (bool, error) {
	s := known.(*state)
	d := &draft{table: t, s: s, version: s.version + 1, bodies: map[string][]byte{}, gone: map[*manifest]bool{}, counts: map[string]int64{}, same: true}
	number := d.version
	d.number = &number
	if d.version > most {
		return false, fmt.Errorf("iceberg: version %d has no name: publish to a new place", d.version)
	}
	if err := d.begin(c); err != nil {
		return false, err
	}
	for i := range c.Parts {
		if err := d.part(ctx, &c.Parts[i]); err != nil {
			return false, err
		}
	}
	if err := d.snapshot(c); err != nil {
		return false, err
	}
	body, err := d.doc.encode()
	if err != nil {
		return false, err
	}
	// guard:iceberg-files-first. The metadata of a version is created only when its manifests and their list are certain to be
	// there.
	//
	//mutant:replace err := d.upload(ctx); err != nil => err := error(nil); err != nil
	if err := d.upload(ctx); err != nil {
		return false, err
	}
	// guard:iceberg-create. A version is created only if it is absent, and is never overwritten.
	//
	//mutant:replace store.Create(ctx, t.root, versionKey(d.version), body, &store.WriteOptions{Settle: t.settle}) => t.root.Put(ctx, versionKey(d.version), body, nil)
	created, err := store.Create(ctx, t.root, versionKey(d.version), body, &store.WriteOptions{Settle: t.settle})
	if errors.As(err, new(*store.ConflictError)) {
		return false, nil
	}
	if err == nil {
		err = d.apply(created.Version)
	}
	return err == nil, err
}

// begin makes the document, without its snapshot.
func (d *draft) begin(c *delta.Change) error {
	d.doc = &metadata{Location: d.location, Properties: map[string]string{}}
	if d.s.doc != nil {
		next := *d.s.doc
		next.Properties = maps.Clone(next.Properties)
		next.Snapshots = slices.Clone(next.Snapshots)
		next.SnapshotLog, next.MetadataLog, next.Refs = slices.Clone(next.SnapshotLog), slices.Clone(next.MetadataLog), maps.Clone(next.Refs)
		d.doc = &next
		d.doc.MetadataLog = append(d.doc.MetadataLog, earlier{next.LastUpdated, next.url(versionKey(d.s.version))})
		if n := len(d.doc.MetadataLog); n > maxEarlier {
			d.doc.MetadataLog = slices.Delete(d.doc.MetadataLog, 0, n-maxEarlier)
		}
	}
	d.doc.LastUpdated = max(d.clock.Wall().UnixMilli(), d.doc.LastUpdated)
	d.doc.LastSequence = d.version
	d.codec = d.s.codec
	if c.Meta != nil {
		if err := d.doc.setMeta(c.Meta); err != nil {
			return err
		}
		var err error
		if d.codec, err = d.doc.codec(); err != nil {
			return err
		}
	}
	for _, p := range c.Parts {
		b, err := json.Marshal(held{p.Edits, p.Hold})
		if err != nil {
			return fmt.Errorf("iceberg: %w", err)
		}
		d.doc.Properties[logProperty+p.Log.String()] = string(b)
	}
	return nil
}

// part writes the manifests that one log needs.
func (d *draft) part(ctx context.Context, p *delta.Part) error {
	entries := make([]entry, 0, len(p.Add))
	for i := range p.Add {
		a := &p.Add[i]
		// guard:iceberg-path-once. A version adds a file only if no version before has it active, and removes only files that are.
		//
		//mutant:replace ; active { => ; active && a == nil {
		if log, active := d.s.Owner(a.Path); active {
			return fmt.Errorf("iceberg: version %d: file %s is active for log %s, and log %s adds it: two logs write below one name", d.version, a.Path, log, p.Log)
		}
		e, err := d.entry(a)
		if err != nil {
			return err
		}
		entries = append(entries, e)
		d.counts["added-data-files"]++
		d.counts["added-records"] += e.File.Records
		d.counts["added-files-size"] += e.File.Size
		d.same = d.same && a.Rewrite
	}
	removed := map[*manifest]map[string]bool{}
	var touched []*manifest
	for _, r := range p.Remove {
		m := d.s.files[r.Path]
		if m == nil || m.key.log != p.Log {
			return fmt.Errorf("iceberg: version %d removes %q, which is not active", d.version, r.Path)
		}
		if removed[m] == nil {
			removed[m] = map[string]bool{}
			touched = append(touched, m)
		}
		removed[m][d.doc.url(r.Path)] = true
		d.same = d.same && r.Rewrite
	}
	pools := d.pools(p.Log, touched, len(entries))
	if len(pools) == 0 && len(entries) > 0 {
		pools = [][]*manifest{nil}
	}
	for _, pool := range pools {
		all := entries
		entries = nil
		for _, m := range pool {
			old, err := d.entriesOf(ctx, d.s, m)
			if err != nil {
				return err
			}
			all = append(all, d.carried(old, removed[m])...)
			d.gone[m] = true
		}
		if err := d.write(p.Log, all); err != nil {
			return err
		}
	}
	return nil
}

// pools returns the manifests to be written anew, as those that become one. The first pool gets what is added too.
func (d *draft) pools(log fence.ID, touched []*manifest, fresh int) (all [][]*manifest) {
	n := fresh
	var pool []*manifest
	for _, m := range touched {
		if n > 0 && n+m.live() > maxFiles {
			all = append(all, pool)
			pool, n = nil, 0
		}
		pool, n = append(pool, m), n+m.live()
	}
	if fresh > 0 && len(touched) == 0 {
		pool = d.small(log, fresh)
	}
	if len(pool) > 0 {
		all = append(all, pool)
	}
	return all
}

// small returns manifests that are merged with what is added.
func (d *draft) small(log fence.ID, fresh int) (pool []*manifest) {
	var own []*manifest
	for _, m := range d.s.manifests {
		if m.key.log == log && m.live() > 0 && m.live() < maxFiles {
			own = append(own, m)
		}
	}
	slices.SortFunc(own, func(a, b *manifest) int { return cmp.Compare(a.live(), b.live()) })
	for limit := 10; limit <= maxFiles; limit *= 10 {
		n, files := 0, fresh
		for n < len(own) && own[n].live() < limit && files+own[n].live() <= maxFiles {
			files += own[n].live()
			n++
		}
		if n < fanIn-1 {
			break
		}
		if n > len(pool) {
			pool = own[:n]
		}
	}
	return pool
}

// carried returns the entries of a manifest that is written anew.
func (d *draft) carried(old []entry, removed map[string]bool) []entry {
	all := make([]entry, 0, len(old))
	for _, e := range old {
		if e.Status == deleted {
			continue // by a version before
		}
		e.Status = existing
		if removed[e.File.Path] {
			e.Status, e.Snapshot = deleted, d.number
			d.counts["deleted-data-files"]++
			d.counts["deleted-records"] += e.File.Records
			d.counts["removed-files-size"] += e.File.Size
		}
		all = append(all, e)
	}
	return all
}

// write encodes a manifest.
func (d *draft) write(log fence.ID, all []entry) error {
	body, err := d.codec.manifest(all)
	if err != nil {
		return err
	}
	m := &manifest{name: manifestKey(d.version, log, body)}
	m.key, _ = parseAvro(m.name)
	m.listed = listed{Path: d.doc.url(m.name), Length: int64(len(body)), Sequence: d.version, MinSequence: d.version, Snapshot: d.version}
	for _, e := range all {
		switch e.Status {
		case added:
			m.Added++
			m.AddedRows += e.File.Records
		case existing:
			m.Existing++
			m.ExistingRows += e.File.Records
		case deleted:
			m.Deleted++
			m.DeletedRows += e.File.Records
		}
		if e.Status != deleted {
			m.MinSequence = min(m.MinSequence, *e.Sequence)
		}
	}
	m.keep(all)
	d.bodies[m.name] = body
	d.fresh = append(d.fresh, m)
	if len(all) > keptEntries {
		m.entries = all // until the version is applied, which needs the paths
	}
	return nil
}

// entry returns that of a file.
func (d *draft) entry(a *delta.Added) (e entry, err error) {
	e = entry{Status: added, Snapshot: d.number, Sequence: d.number, FileSeq: d.number}
	e.File = dataFile{Path: d.doc.url(a.Path), Format: "PARQUET", Partition: map[string]any{}, Records: a.Footer.Rows, Size: a.File.Size}
	for _, f := range d.codec.spec {
		v, err := partitionValue(f.of, a.Partition[f.Name])
		if err != nil {
			return e, fmt.Errorf("%w: %s: the partition column %s: %w", delta.ErrSchema, a.Path, f.Name, err)
		}
		e.File.Partition[avroField(f.Name)] = v
	}
	fields := d.doc.schema().Fields
	var values, nulls []count
	var lower, upper []limit
	for _, c := range a.Footer.Columns {
		f := find(fields, c.Path)
		if f == nil {
			continue
		}
		id := int32(f.ID)
		values = append(values, count{id, c.Values})
		if c.CountsNulls {
			nulls = append(nulls, count{id, c.Nulls})
		}
		if c.Low != nil {
			lower = append(lower, limit{id, single(f.Type.name, c.Low)})
			upper = append(upper, limit{id, single(f.Type.name, c.High)})
		}
	}
	e.File.Values, e.File.Nulls, e.File.Lower, e.File.Upper = &values, &nulls, &lower, &upper
	return e, nil
}

// snapshot writes the list, and the snapshot into the document, if a file changes.
func (d *draft) snapshot(c *delta.Change) error {
	d.prune()
	for _, m := range d.s.manifests {
		if !d.gone[m] && (m.live() > 0 || len(d.fresh) == 0) {
			d.now = append(d.now, m)
		}
	}
	d.now = append(d.now, d.fresh...)
	if len(d.fresh) == 0 {
		return nil
	}
	all := make([]listed, 0, len(d.now))
	for _, m := range d.now {
		all = append(all, m.listed)
		d.counts["total-data-files"] += int64(m.live())
		d.counts["total-records"] += m.AddedRows + m.ExistingRows
	}
	parent := max(d.doc.Current, 0)
	body, err := encodeList(all, d.version, parent)
	if err != nil {
		return err
	}
	key := listKey(d.version, body)
	d.bodies[key] = body
	d.doc.Current = d.version
	d.doc.Snapshots = append(d.doc.Snapshots, snapshot{
		ID: d.version, Parent: parent, Sequence: d.version, At: d.doc.LastUpdated, List: d.doc.url(key), Summary: d.summary(c), Schema: d.doc.CurrentSchema,
	})
	d.doc.SnapshotLog = append(d.doc.SnapshotLog, logged{d.doc.LastUpdated, d.version})
	d.doc.Refs["main"] = ref{d.version, "branch"}
	return nil
}

// prune leaves out snapshots that are not needed any more, and thins out what is more than a version may list.
func (d *draft) prune() {
	old := func(id int64) bool { return id < d.keep && id != d.doc.Current }
	d.doc.Snapshots = slices.DeleteFunc(d.doc.Snapshots, func(s snapshot) bool { return old(s.ID) })
	if n := len(d.doc.Snapshots); n >= maxSnapshots {
		// Every second one of the older half.
		thin := make([]snapshot, 0, n)
		for i, s := range d.doc.Snapshots {
			if i >= n/2 || i%2 == 0 {
				thin = append(thin, s)
			}
		}
		d.doc.Snapshots = thin
	}
	if n := len(d.doc.SnapshotLog); n != len(d.doc.Snapshots) {
		there := map[int64]bool{}
		for _, s := range d.doc.Snapshots {
			there[s.ID] = true
		}
		d.doc.SnapshotLog = slices.DeleteFunc(d.doc.SnapshotLog, func(l logged) bool { return !there[l.Snapshot] })
	}
}

// summary tells what the version does, and up to where each log is published.
func (d *draft) summary(c *delta.Change) map[string]string {
	all := map[string]string{"engine-name": "fencepost"}
	for name, n := range d.counts {
		all[name] = strconv.FormatInt(n, 10)
	}
	adds, removes := d.counts["added-data-files"] > 0, d.counts["deleted-data-files"] > 0
	switch {
	case adds && removes && d.same:
		all["operation"] = "replace"
	case adds && removes:
		all["operation"] = "overwrite"
	case removes:
		all["operation"] = "delete"
	default:
		all["operation"] = "append"
	}
	for _, p := range c.Parts {
		end := ""
		if len(c.Parts) > 1 {
			end = "." + p.Log.String()
		}
		all["fencepost.log"+end] = p.Log.String()
		all["fencepost.source"+end] = p.Name
		all["fencepost.edits"+end] = strconv.FormatUint(p.Edits, 10)
		all["fencepost.epoch"+end] = strconv.FormatUint(p.Hold.Epoch, 10)
		if p.Offset > 0 || p.Edits <= 1 {
			all["fencepost.offset"+end] = strconv.FormatUint(p.Offset, 10)
		}
	}
	return all
}

// upload writes the manifests and the list.
func (d *draft) upload(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for key, body := range d.bodies {
		g.Go(func() error {
			_, err := store.Create(gctx, d.root, key, body, &store.WriteOptions{Settle: d.settle})
			return err
		})
	}
	return g.Wait()
}

// apply makes the state that of the version.
func (d *draft) apply(object store.Version) error {
	s := d.s
	for _, m := range d.fresh {
		for _, e := range m.entries {
			path, err := d.doc.keyOf(e.File.Path)
			if err != nil {
				return err
			}
			if e.Status == deleted {
				delete(s.files, path)
			} else {
				s.files[path] = m
			}
		}
		if len(m.entries) > keptEntries {
			m.entries = nil
		}
	}
	var err error
	if s.meta, s.holds, err = d.doc.meta(); err != nil {
		return err
	}
	s.version, s.object, s.doc, s.codec, s.manifests = d.version, object, d.doc, d.codec, d.now
	return nil
}
