package backup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/chain"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/probe"
)

// NoteKey is the object of a backup that says what it is. A log does not have it.
const NoteKey = layout.BackupKey

// note is the document NoteKey.
type note struct {
	Format int `json:"format"`
	// Requires has "files" if Files is not empty, so that a program that does not know what to do
	// with such files refuses the backup.
	Requires []string `json:"requires,omitempty"`
	Log      fence.ID `json:"log"`
	Source   string   `json:"source"`
	// Files is the second store that had the files of the table; empty if the log has none.
	// In the backup these files are under their keys in the log.
	Files string `json:"files,omitempty"`
	// Version is 0 until the first one is pinned.
	Version uint64    `json:"version"`
	Pin     string    `json:"pin"`
	Begun   time.Time `json:"begun"`
	// Place is a random name of the destination, which tells it from others that have the same URL, such as
	// file:///backup of another machine. Pin has it too. Backups of older versions lack it.
	Place string `json:"place,omitempty"`
	// Run is new with each version that a backup begins: two processes never write the same note.
	Run string `json:"run"`
	// Chain is where the chain of the copy ends, once Done is set.
	Chain *ending `json:"chain,omitempty"`
	// Done says that the backup is complete.
	Done bool `json:"done"`
	// Previous is the complete backup that is being brought up to date. Until Done is set it can be
	// restored: nothing that it has is deleted or replaced before.
	Previous *complete `json:"previous,omitempty"`
}

// complete is a backup that is complete, although a later one has begun in the same place.
type complete struct {
	Version uint64 `json:"version"`
	Chain   ending `json:"chain"`
}

// Report says what a backup or a restore has copied. It marshals to JSON.
type Report struct {
	Log     fence.ID `json:"log"`
	Version uint64   `json:"version"`
	// First is the offset of the first record, End the number of all.
	First uint64 `json:"first"`
	End   uint64 `json:"end"`
	// Objects counts all, Present those that were there already.
	Objects int   `json:"objects"`
	Present int   `json:"present"`
	Bytes   int64 `json:"bytes"`
	// Strange counts the objects of a backup that a restore has left out, since no backup has objects of these names.
	Strange int `json:"strange,omitempty"`
	// Healed counts those that were there, but damaged, and were copied again.
	Healed int `json:"healed,omitempty"`
	// ServerSide says that the store copied by itself.
	ServerSide bool `json:"server_side"`
	// Files is the second store from which, or to which, the files of the table were copied.
	Files    string `json:"files,omitempty"`
	Verified bool   `json:"verified"`
	// Epoch is the least epoch of the next leader of a restored log.
	Epoch fence.Epoch `json:"epoch,omitempty"`
}

// Options of Make and Restore. Nil works like the zero value.
type Options struct {
	// Files is the store for the files of the table, if the log keeps them in a second one: that
	// of the log that is backed up, or of the restored one.
	Files store.Store
	// Probe configures the probe of the store to which a log is restored, and of Files without Open.
	Probe *probe.Options
	// NoVerify leaves out reading the copy.
	NoVerify bool
	// Progress is called with bytes; a total of 0 is not known.
	Progress func(stage string, done, total int64)
	// Note tells people what is happening.
	Note func(format string, args ...any)
}

func (o *Options) defaults() Options {
	d := Options{}
	if o != nil {
		d = *o
	}
	if d.Progress == nil {
		d.Progress = func(string, int64, int64) {}
	}
	if d.Note == nil {
		d.Note = func(string, ...any) {}
	}
	return d
}

// attempts is how often a backup begins anew because the log was faster.
const attempts = 5

// Make makes a backup of the log in from, or goes on with one, or brings one up to date. The
// destination must be empty or hold a backup of the same log. It says first that it is a backup: who would write there gets manifest.ErrBackup. Until it is done a pin keeps
// the version; a later call goes on with it. The backup has the files of the table in itself,
// also if the log keeps them in a second store. manifest.ErrFiles means that this store was not
// given.
func Make(ctx context.Context, from, to store.Store, opts *Options) (*Report, error) {
	o := opts.defaults()
	if err := distinct(from, to, "the log", "its backup"); err != nil {
		return nil, err
	}
	r, err := reader.Open(ctx, from, nil)
	if err != nil {
		return nil, err
	}
	log, err := state.Open(ctx, from, &state.Options{Files: o.Files})
	if err != nil {
		return nil, err
	}
	// Files that were moved since must not be looked for in their old place.
	if _, err := log.CheckFiles(ctx, false); err != nil {
		return nil, err
	}
	if err := log.Writable(); err != nil {
		return nil, fmt.Errorf("%w. Or copy all its objects by other means: a copy of a backup is a backup", err)
	}
	format := log.Format()
	b := &making{Options: o, transfer: begin(from, to, &Report{Log: format.Log}, &o), source: log, reader: r, format: format}
	b.limits = format.Limits
	if b.format.Files != nil {
		if b.files, err = filesOut(&b.format, o.Files, to); err != nil {
			return nil, err
		}
	}
	if err := ageless(ctx, &o, to); err != nil {
		return nil, err
	}
	if err := b.prepare(ctx); err != nil {
		return nil, err
	}
	b.own = b.alone
	b.tryServer(ctx)
	err = b.complete(ctx)
	if err != nil && !b.note.Done && !errors.Is(err, errOvertaken) {
		// It may come from another backup, which has replaced or deleted what this one needs.
		if other := b.alone(ctx); errors.Is(other, errOvertaken) {
			err = other
		}
	}
	return b.report, err
}

// errOvertaken: a later call makes a backup in the same place.
var errOvertaken = errors.New("another backup to this place has begun meanwhile, and this one ends")

// alone returns errOvertaken if the note of the backup is not that of this call any more.
func (b *making) alone(ctx context.Context) error {
	body, info, err := store.Read(ctx, b.to, NoteKey, &store.ReadOptions{Limit: 1 << 20})
	if err != nil || info.Version == b.noted {
		return err
	}
	var now note // it is ours too if nobody has told us that it was written
	if err := document.Decode(NoteKey, body, &now, needsFiles); err != nil || now.Run == b.note.Run {
		return err
	}
	return fmt.Errorf("%w: %s", errOvertaken, b.to.Traits().Name)
}

// complete copies until the backup is whole, and says so in the note.
func (b *making) complete(ctx context.Context) error {
	for n := 1; ; n++ {
		err := b.run(ctx)
		if err == nil {
			// An earlier backup to this place has its manifest still. To the copy it would look like the rest of
			// what somebody has deleted.
			copied := oneVersion{b.to, b.m.Version, oldLocks(b.have)}
			err = b.healing(ctx, func() error {
				return check(ctx, copied, nil, b.note.Chain, b.report, &b.Options)
			})
			if errors.Is(err, fence.ErrCorrupt) {
				err = fmt.Errorf("%w. Run `fencepost verify` on the log: if the log is sound, run the same command again", err)
			}
		}
		if err == nil {
			break
		}
		if !errors.Is(err, errGone) || n == attempts {
			return err
		}
		b.Note("the log was compacted meanwhile; beginning with a newer version")
		if err := b.restart(ctx); err != nil {
			return err
		}
	}
	// The pins, before the note says that this is done: after that, another call may begin, and pin.
	pins, unread := b.reader.Pins(ctx)
	b.note.Done, b.note.Previous = true, nil
	if err := b.save(ctx, &b.note); err != nil {
		return err
	}
	// A copy has one version. Those of earlier backups go last: until now the last complete one needs its own.
	older := oldLocks(b.have)
	for key := range b.have {
		if other(key, b.m.Version) {
			older = append(older, key)
		}
	}
	if err := store.DeleteAll(ctx, b.to, older, nil); err != nil {
		return err
	}
	for _, p := range pins {
		if p.Name == b.note.Pin && p.TTL == 0 && unread == nil {
			unread = b.reader.Release(ctx, p)
		}
	}
	if unread != nil {
		return fmt.Errorf("the backup is complete, but its pin %q is not removed: %w", b.note.Pin, unread)
	}
	return nil
}

// making is a backup under way.
type making struct {
	Options
	*transfer
	source *state.Log
	reader *reader.Reader
	format manifest.Format
	note   note
	m      *state.Manifest
	end    fence.Position  // of the chain that was copied
	listed map[string]bool // what the log had of the chain
	// noted is the object version of the note, empty if there is none.
	noted store.Version
	// marked says that this call has created format.json.
	marked bool
}

// pinName is the name of the pin of a backup.
func pinName(to store.Store, place string) string {
	name := "backup to " + to.Traits().Where()
	return strings.ToValidUTF8(name[:min(len(name), 180)], "") + " " + place
}

// prepare checks the destination, and finds or makes the pin.
func (b *making) prepare(ctx context.Context) (err error) {
	body, info, err := store.Read(ctx, b.to, NoteKey, &store.ReadOptions{Limit: 1 << 20})
	b.noted = info.Version
	if ignore(err, store.ErrNotFound) != nil {
		return err
	}
	// After the note: what another backup adds later is not listed, but then this one cannot write its note.
	var lerr error
	if b.have, lerr = existing(ctx, b.to, ""); lerr != nil {
		return lerr
	}
	switch _, begun := b.have[NoteKey]; {
	case err != nil && begun:
		return fmt.Errorf("%w: %s", errOvertaken, b.to.Traits().Name)
	case err != nil:
		if _, formatted := b.have[layout.FormatKey]; len(b.have) > 1 || len(b.have) == 1 && !formatted {
			return fmt.Errorf("%s is not empty, and holds no backup: give a place of its own", b.to.Traits().Name)
		}
	default:
		if err := document.Decode(NoteKey, body, &b.note, needsFiles); err != nil {
			return fmt.Errorf("the backup in %s cannot be brought up to date; make another one, in a place of its own: %w", b.to.Traits().Name, err)
		}
		if b.note.Log != b.format.Log {
			return fmt.Errorf("%s holds a backup of log %v, and this is log %v", b.to.Traits().Name, b.note.Log, b.format.Log)
		}
	}
	if err := b.claim(ctx); err != nil {
		return err
	}
	return b.restart(ctx)
}

// restart pins the newest version.
func (b *making) restart(ctx context.Context) error {
	if m, err := b.source.Newest(ctx); err != nil {
		return err
	} else if m.Version == 0 {
		return errors.New("the log has no manifest yet, so there is nothing to pin: append something, or run `fencepost compact`, and try again")
	}
	previous := b.note.Previous
	if b.note.Done {
		previous = nil
		if b.note.Chain != nil {
			previous = &complete{b.note.Version, *b.note.Chain}
		}
	}
	// Pins of an earlier attempt have the same name. They go with this one.
	last := b.note
	b.note = note{Format: document.Format, Run: uuid.NewString(), Log: b.format.Log, Source: b.from.Traits().Name, Pin: last.Pin, Place: last.Place, Begun: time.Now().UTC(), Previous: previous}
	if b.format.Files != nil {
		b.note.Files, b.note.Requires = b.files.from.Traits().Name, []string{needsFiles}
	}
	if last.Pin == "" || last.Place == "" && last.Done {
		// The name of the pin is in the note before the pin is there, so that a later call finds it. Until then a
		// backup that is complete stays so.
		b.note.Place = uuid.NewString()[:8]
		b.note.Pin = pinName(b.to, b.note.Place)
		first := b.note
		if last.Done {
			first = last
			first.Run, first.Place, first.Pin = b.note.Run, b.note.Place, b.note.Pin
		}
		if err := b.save(ctx, &first); err != nil {
			return err
		}
	}
	p, err := b.reader.Pin(ctx, b.note.Pin, 0, 0)
	if err != nil {
		return err
	}
	b.note.Version = p.Version
	if b.m, _, err = b.source.At(ctx, p.Version); err != nil {
		return err
	}
	err = b.save(ctx, &b.note)
	if errors.Is(err, errOvertaken) {
		// The other backup may have ended, and removed all pins of this name, before this one was there.
		if rerr := b.reader.Release(ctx, p); rerr != nil {
			return fmt.Errorf("%w; its pin %q is not removed: %w", err, p.Name, rerr)
		}
	}
	return err
}

func (b *making) save(ctx context.Context, n *note) error {
	body, err := document.Encode(NoteKey, n)
	if err != nil {
		return err
	}
	// guard:backup-alone. A backup writes its note only over the one that it has written or read last.
	// Without this check: backup A verifies version 1, and sleeps; backup B to the same place completes
	// version 2, and deletes the manifest of version 1; A wakes, and notes that version 1 is complete; a
	// restore looks for version 1, and the backup of B is of no use.
	//
	//mutant:replace info, err = store.Swap(ctx, b.to, NoteKey, body, b.noted, nil) => err = replace(ctx, b.to, NoteKey, body)
	var info store.Info
	if b.noted == "" {
		info, err = store.Create(ctx, b.to, NoteKey, body, nil)
	} else {
		info, err = store.Swap(ctx, b.to, NoteKey, body, b.noted, nil)
	}
	if errors.Is(err, store.ErrPrecondition) {
		return fmt.Errorf("%w: %s: %w", errOvertaken, b.to.Traits().Name, err)
	}
	if err == nil {
		b.noted = info.Version
	}
	return err
}

// run copies the version, and the chain after its floor.
func (b *making) run(ctx context.Context) error {
	*b.report = Report{Log: b.format.Log, Version: b.m.Version, First: b.m.First(), ServerSide: b.report.ServerSide, Files: b.note.Files, Healed: b.report.Healed}
	b.done.Store(0)
	b.total.Store(0)
	// First what no pin holds.
	if err := b.chain(ctx); err != nil {
		return err
	}
	var files []item
	if err := b.healing(ctx, func() (err error) {
		files, err = b.newFiles(ctx)
		return err
	}); err != nil {
		return err
	}
	b.note.Chain = &ending{b.report.End, b.end}
	if err := b.all(ctx, files); err != nil {
		return err
	}
	items, err := b.named(ctx)
	if err != nil {
		return err
	}
	if err := b.all(ctx, items); err != nil {
		return err
	}
	for _, prefix := range []string{layout.LockPrefix, layout.CompactorLockPrefix} {
		if err := b.lock(ctx, prefix); err != nil {
			return err
		}
	}
	// The manifest after all that it names: with it the copy can be read.
	if err := b.all(ctx, []item{{key: layout.ManifestKey(b.m.Version), size: -1}}); err != nil {
		return err
	}
	b.done.Add(b.have[layout.FormatKey])
	b.count(layout.FormatKey, b.have[layout.FormatKey], !b.marked)
	return nil
}

// chain copies the objects from the floor on.
func (b *making) chain(ctx context.Context) error {
	after := &store.ListOptions{}
	if at := b.m.Floor.Position; at.Seq > 1 {
		after.StartAfter = layout.DataKey(fence.Position{Epoch: at.Epoch, Seq: at.Seq - 1})
	}
	var items []item
	b.listed = map[string]bool{} // a listing that began again repeats itself
	for info, err := range store.ListAll(ctx, b.from, layout.DataPrefix, after, nil) {
		if err != nil {
			return err
		}
		if p, ok := layout.ParseDataKey(info.Key); ok && !b.m.Past(p) && !b.listed[info.Key] {
			b.listed[info.Key] = true
			items = append(items, item{key: info.Key, size: info.Size})
			b.total.Add(info.Size)
		}
	}
	err := b.all(ctx, items)
	var at string
	if other, ok := errors.AsType[*otherError](err); ok {
		at = other.key
	} else if bad, ok := errors.AsType[*originalError](err); ok {
		at = bad.key
	}
	// What is not confirmed yet may be a zombie's junk in a hole that pruning has left.
	if p, ok := layout.ParseDataKey(at); ok {
		if floor, ferr := b.source.Floor(ctx); ferr == nil && p.Before(floor) {
			return fmt.Errorf("%w: %w", errGone, err)
		}
	}
	return err
}

// newFiles returns the files that are live at the end of the chain that was copied and not at
// the floor, and notes where that chain ends. Nothing holds them but the grace period.
func (b *making) newFiles(ctx context.Context) ([]item, error) {
	source := &chain.Source{Store: b.to, Log: b.format.Log, Limits: b.format.Limits}
	follow := &chain.Follower{Source: source, Floor: b.source.Floor}
	added := map[string]int64{}
	b.report.End, b.end = b.m.Floor.Offset, b.m.Floor.Position
	for step, err := range follow.Walk(ctx, b.m.Floor) {
		if err != nil {
			return nil, rotten(moved(err), step.From.Position)
		}
		b.report.End, b.end = step.To.Offset, step.To.Position
		if step.Frame.Kind != frame.Edit {
			continue
		}
		edit, err := state.DecodeEdit(step.Frame.Edit())
		if err != nil {
			return nil, err
		}
		for _, f := range edit.Add {
			added[f.Key] = f.Size
		}
		for _, key := range edit.Remove {
			delete(added, key)
		}
	}
	if lost := layout.DataKey(b.end); b.listed[lost] {
		return nil, &damagedError{keys: []string{lost}, err: fmt.Errorf("%w: %s was copied to %s, and is missing there", fence.ErrCorrupt, lost, b.to.Traits().Name)}
	}
	// guard:backup-chain. A backup reads the log's floor after it has copied the chain. If the floor has
	// passed the end of the copy, or the first seal in it, the backup begins anew. Without this check: a
	// compactor deletes slot 1/4 and sleeps before it deletes 1/2 and 1/3; zombie Z puts its late seal
	// into the hole 1/4; a backup of an older version copies 1/2, 1/3 and this seal; the seal leads to
	// an epoch without objects, so the chain of the copy ends there; the backup lacks records of 1/4 and
	// later, which were acknowledged before it began.
	//
	//mutant:replace follow.Tail(ctx, b.end) => error(nil)
	if err := follow.Tail(ctx, b.end); err != nil {
		return nil, moved(err)
	}
	var items []item
	for key, size := range added {
		items = append(items, item{key: key, size: size})
		b.total.Add(size)
	}
	return items, nil
}

// rotten returns an error about the object of the chain in a slot as a damagedError, if that is damaged.
func rotten(err error, at fence.Position) error {
	if errors.Is(err, fence.ErrCorrupt) && !errors.Is(err, errGone) {
		return &damagedError{keys: []string{layout.DataKey(at)}, walk: &at, err: err}
	}
	return err
}

// moved returns errGone if the floor has moved, and else err.
func moved(err error) error {
	if errors.Is(err, chain.ErrMoved) {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return err
}

// named returns what the version names: all of it is held by the pin.
func (b *making) named(ctx context.Context) (items []item, err error) {
	add := func(key string, size int64) {
		items = append(items, item{key: key, size: size})
		b.total.Add(max(size, 0))
	}
	for _, p := range b.source.Lists(b.m) {
		add(p, -1)
	}
	for s, err := range b.source.Seals(ctx, b.m) {
		if err != nil {
			return nil, err
		}
		add(layout.DataKey(s.Position), frame.HeaderSize)
	}
	for s, err := range b.source.Segments(ctx, b.m, b.m.Held()) {
		if err != nil {
			return nil, err
		}
		add(s.Key, s.Size)
	}
	for f, err := range b.source.Files(ctx, b.m) {
		if err != nil {
			return nil, err
		}
		add(f.Key, f.Size)
	}
	return items, nil
}

// lock copies the newest lock of an election.
func (b *making) lock(ctx context.Context, prefix string) error {
	for range tries {
		newest := ""
		for info, err := range store.ListAll(ctx, b.from, prefix, nil, nil) {
			if err != nil {
				return err
			}
			if _, ok := layout.ParseLockKey(prefix, info.Key); ok {
				newest = max(newest, info.Key)
			}
		}
		if newest == "" {
			return nil
		}
		body, _, err := store.Read(ctx, b.from, newest, &store.ReadOptions{Limit: 64 << 10})
		if errors.Is(err, store.ErrNotFound) {
			continue // pruned meanwhile: there is a newer one
		}
		if err != nil {
			return err
		}
		b.have[newest] = int64(len(body))
		return replace(ctx, b.to, newest, body)
	}
	return fmt.Errorf("%w: below %s", errGone, prefix)
}
