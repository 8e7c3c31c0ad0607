package delta

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
)

// checkpointEvery is after how many versions there is a checkpoint.
const checkpointEvery = 100

// Lake is the format of Delta Lake.
func Lake() Format { return lakeFormat{} }

type lakeFormat struct{}

func (lakeFormat) Name() string { return "delta" }

// Check is [Format.Check]: all types of a [Schema] are Delta's.
func (lakeFormat) Check(*Schema, []string, *Footer) error { return nil }

func (lakeFormat) Open(p Place) (Table, error) {
	return &deltaTable{table: &table{st: p.Root, settle: p.Settle, clock: p.Clock, foreign: p.Foreign}, failed: p.Failed, every: checkpointEvery}, nil
}

// deltaTable is a Delta table of a publisher.
type deltaTable struct {
	*table
	failed func(error)
	listed *listing // of the whole Delta log, by the last load; or nil
	every  int64    // checkpointEvery, but in tests
}

// Load is [Table.Load].
func (t *deltaTable) Load(ctx context.Context, known State, whole bool) (State, error) {
	t.listed = nil
	from := int64(0)
	s, _ := known.(*state)
	if s != nil && !whole {
		from = max(s.version, 0)
	}
	s, l, err := t.loadFrom(ctx, s, from)
	if err == nil {
		err = s.parse()
	}
	if err != nil {
		return nil, err
	}
	if whole {
		t.listed = l
	}
	return s, nil
}

// Newer is [Table.Newer].
func (t *deltaTable) Newer(ctx context.Context, known State) (bool, error) {
	_, _, err := store.Read(ctx, t.st, commitKey(known.Version()+1), &store.ReadOptions{Length: 1, Settle: t.settle})
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Create is [Table.Create].
func (t *deltaTable) Create(ctx context.Context, known State, c *Change) (bool, error) {
	s := known.(*state)
	now := t.clock.Wall().UnixMilli()
	var actions []action
	if m := c.Meta; m != nil {
		meta := &metaData{
			ID: m.ID, Name: m.Name, Format: provider{Provider: "parquet", Options: map[string]string{}}, Partition: append([]string{}, m.Partition...),
			Config: configOf(m.Retention), CreatedTime: now,
		}
		if s.meta == nil {
			actions = append(actions, action{Protocol: ours()})
		} else {
			old := *s.meta
			meta = &old
		}
		meta.Schema = m.Schema.String()
		actions = append(actions, action{Meta: meta})
	}
	for _, p := range c.Parts {
		actions = append(actions, actionsOf(s, &p, now)...)
	}
	created, err := t.create(ctx, s, operations[c.Operation], actions)
	if err == nil {
		err = s.parse()
	}
	return created, err
}

var operations = map[string]string{"create": "FENCEPOST CREATE", "schema": "FENCEPOST SCHEMA", "publish": "FENCEPOST PUBLISH", "unpublish": "FENCEPOST UNPUBLISH"}

// actionsOf returns what one version does for one source.
func actionsOf(s *state, p *Part, now int64) (all []action) {
	log := p.Log.String()
	for _, f := range p.Add {
		added := &file{path: f.Path, log: log, partition: f.Partition, size: f.File.Size, modified: now, stats: statsText(f.Footer)}
		all = append(all, action{Add: added.add(!f.Rewrite)})
	}
	for _, r := range p.Remove {
		f := s.files[r.Path]
		if f == nil {
			f = &file{path: r.Path} // refused when the version is computed
		}
		all = append(all, action{Remove: f.remove(now, !r.Rewrite)})
	}
	if !p.Hold.Gone {
		all = append(all, action{Txn: &txn{App: log, Version: p.Edits, Updated: now}})
	}
	return append(all, holdAction(p.Log, p.Hold))
}

// Owes is [Table.Owes]: a checkpoint.
func (t *deltaTable) Owes(s State) (bool, time.Duration) {
	return s.Version() > 0 && s.Version()%t.every == 0, 0
}

// Settle is [Table.Settle].
func (t *deltaTable) Settle(ctx context.Context, s State) (bool, error) {
	if s.Version() <= 0 {
		return false, nil
	}
	if err := t.checkpoint(ctx, s.(*state), s.Meta().Retention); err != nil {
		return false, fmt.Errorf("delta: the checkpoint of version %d is not written: %w", s.Version(), err)
	}
	return true, nil
}

// First is [Table.First].
func (t *deltaTable) First() string { return commitKey(0) }

// Version is [State.Version].
func (s *state) Version() int64 { return s.version }

// Meta is [State.Meta].
func (s *state) Meta() *Meta { return s.parsed }

// parse reads what the metaData says, if that has changed.
func (s *state) parse() error {
	if s.parsedOf == s.meta {
		return nil
	}
	has, err := ParseSchema(s.meta.Schema)
	if err != nil {
		return err
	}
	s.parsedOf = s.meta
	s.parsed = &Meta{ID: s.meta.ID, Name: s.meta.Name, Schema: has, Partition: slices.Clone(s.meta.Partition), Retention: retentionOf(s.meta)}
	return nil
}

// Len is [State.Len].
func (s *state) Len() int { return len(s.files) }

// Owner is [State.Owner].
func (s *state) Owner(path string) (log fence.ID, active bool) {
	if f := s.files[path]; f != nil {
		return idOf(f.log), true
	}
	return fence.ID{}, false
}

// Files is [State.Files].
func (s *state) Files() iter.Seq2[string, fence.ID] {
	return func(yield func(string, fence.ID) bool) {
		for path, f := range s.files {
			if !yield(path, idOf(f.log)) {
				return
			}
		}
	}
}

func idOf(log string) (id fence.ID) {
	_ = id.UnmarshalText([]byte(log)) // [add.file] has read it
	return id
}

func retentionOf(m *metaData) time.Duration {
	var n int
	if _, err := fmt.Sscanf(m.Config[retentionKey], "interval %d seconds", &n); err != nil || n <= 0 {
		return DefaultRetention
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
