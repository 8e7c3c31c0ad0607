package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/verify"
)

// attempts is how often a backup begins anew because the log was faster.
const attempts = 5

// pinPrefix begins the names of pins that backups make.
const pinPrefix = "backup to "

// errOvertaken: a later call makes a backup in the same place.
var errOvertaken = errors.New("another backup to this place has begun meanwhile, and this one ends")

// making is a backup under way.
type making struct {
	*transfer
	reader *reader.Reader
	format manifest.Format // of the log
	note   note
	// began is where the log ended before the version of the note was pinned.
	began reader.Place
	// damage says why that is not known.
	damage error
	floor  fence.Position // of this version
	// noted is the object version of the note, empty if there is none.
	noted store.Version
	// marked says that this call has created format.json.
	marked bool
}

// Make makes a backup of the log in from, or goes on with one, or brings one up to date. The
// destination must be empty or hold a backup of the same log. It says first that it is a backup: who would write
// there gets manifest.ErrBackup. Until it is done a pin keeps the version; a later call goes on with it. The backup
// has the files of the table in itself, also if the log keeps them in a second store. manifest.ErrFiles means that
// this store was not given.
func Make(ctx context.Context, from, to store.Store, opts *Options) (*Report, error) {
	o := opts.defaults()
	if err := distinct(from, to, "the log", "its backup", "give each a place of its own"); err != nil {
		return nil, err
	}
	if err := roomy(to); err != nil {
		return nil, err
	}
	f, err := manifest.ReadFormat(ctx, from, nil)
	if err != nil {
		return nil, err
	}
	if f.Backup {
		return nil, fmt.Errorf("%w: %s. Or copy all its objects by other means: a copy of a backup is a backup", manifest.ErrBackup, from.Traits().Name)
	}
	r, err := reader.Open(ctx, from, &reader.Options{Files: o.Files})
	if err != nil {
		return nil, err
	}
	switch {
	case f.Files != nil && o.Files == nil:
		return nil, fmt.Errorf("%w: the log in %s keeps its files in another store, %s: give that with --files URL", manifest.ErrFiles, from.Traits().Name, f.Files.Store)
	case f.Files == nil && o.Files != nil:
		return nil, fmt.Errorf("%w: the log in %s keeps its files in its own store: leave out --files", manifest.ErrFiles, from.Traits().Name)
	case o.Files != nil:
		// Files that were moved since must not be looked for in their old place.
		if _, _, err := manifest.ClaimFiles(ctx, nil, o.Files, f.Log, nil); err != nil {
			return nil, err
		}
		if err := apart(o.Files, to); err != nil {
			return nil, err
		}
	}
	b := &making{transfer: &transfer{
		Options: o, from: side{log: from}.with(o.Files, f), to: side{log: to}, limits: f.Limits, report: &Report{Log: f.Log}, healed: map[string]bool{},
		look: "verify",
	}, reader: r, format: f}
	b.own = func(ctx context.Context) error {
		// Nobody can tell whether a damaged log has the history of its backup.
		return cmp.Or(b.damage, b.alone(ctx))
	}
	if err := ageless(ctx, &o, to); err != nil {
		return nil, err
	}
	if err := b.prepare(ctx); err != nil {
		return nil, err
	}
	err = b.complete(ctx)
	if err != nil && !b.note.Done && !errors.Is(err, errOvertaken) {
		// It may come from another backup, which has replaced or deleted what this one needs.
		if other := b.alone(ctx); errors.Is(other, errOvertaken) {
			err = other
		}
	}
	return b.report, err
}

// roomy refuses a place whose prefix is so long that the key of some object of a log in it would be too long.
func roomy(to store.Store) error {
	type view interface {
		Above() (st store.Store, prefix string)
	}
	st, taken := to, 0
	for v, ok := store.As[view](st); ok; v, ok = store.As[view](st) {
		var prefix string
		st, prefix = v.Above()
		taken += len(prefix) + 1
	}
	if most := store.MaxKey - manifest.MaxKey; taken > most {
		return fmt.Errorf("the prefix of %s has %d bytes; it has at most %d, because keys below it have up to %d and no key has more than %d; nothing was copied; give it a shorter one",
			to.Traits().Name, taken-1, most-1, manifest.MaxKey, store.MaxKey)
	}
	return nil
}

// ageless refuses places whose bucket deletes objects by their age. With NoVerify it only tells people.
func ageless(ctx context.Context, o *Options, places ...store.Store) error {
	for _, st := range places {
		found, err := verify.Rules(ctx, st, nil)
		switch {
		case errors.Is(err, store.ErrDenied), errors.Is(err, errors.ErrUnsupported), err != nil && o.NoVerify:
		case err != nil:
			return err
		case len(found) > 0 && o.NoVerify:
			o.Note("%s: %s; %s", st.Traits().Name, found[0].What, found[0].Remedy)
		case len(found) > 0:
			return fmt.Errorf("%s: %s; nothing was copied; %s", st.Traits().Name, found[0].What, found[0].Remedy)
		}
	}
	return nil
}

// alone returns errOvertaken if the note of the backup is not that of this call any more.
func (b *making) alone(ctx context.Context) error {
	body, info, err := store.Read(ctx, b.to.log, NoteKey, &store.ReadOptions{Limit: maxNote})
	if err != nil || info.Version == b.noted {
		return err
	}
	var now note // it is ours too if nobody has told us that it was written
	if err := document.Decode(NoteKey, body, &now); err != nil || now.Run == b.note.Run {
		return err
	}
	return fmt.Errorf("%w: %s", errOvertaken, b.to.log.Traits().Name)
}

// prepare checks the destination, marks it, and finds or makes the pin.
func (b *making) prepare(ctx context.Context) error {
	body, info, err := store.Read(ctx, b.to.log, NoteKey, &store.ReadOptions{Limit: maxNote})
	b.noted = info.Version
	if ignore(err, store.ErrNotFound) != nil {
		return err
	}
	// After the note: what another backup adds later is not listed, but then this one cannot write its note.
	var lerr error
	if b.have, lerr = b.to.list(ctx, ""); lerr != nil {
		return lerr
	}
	name := b.to.log.Traits().Name
	switch _, begun := b.have[NoteKey]; {
	case err != nil && begun:
		return fmt.Errorf("%w: %s", errOvertaken, name)
	case err != nil:
		if _, formatted := b.have[inspect.Format.Prefix()]; len(b.have) > 1 || len(b.have) == 1 && !formatted {
			return fmt.Errorf("%s is not empty, and holds no backup: give a place of its own", name)
		}
	default:
		if err := document.Decode(NoteKey, body, &b.note); err != nil {
			return fmt.Errorf("the backup in %s cannot be brought up to date; make another one, in a place of its own: %w", name, err)
		}
		if !strings.HasPrefix(b.note.Pin, pinPrefix) {
			b.note.Pin = "" // a backup removes all pins of this name, and whoever wrote the note may name one of other people
		}
		if b.note.Log != b.format.Log {
			return fmt.Errorf("%s holds a backup of log %v, and this is log %v", name, b.note.Log, b.format.Log)
		}
	}
	if err := b.claim(ctx); err != nil {
		return err
	}
	return b.restart(ctx)
}

// claim marks the place as a backup before anything else is written there.
//
// guard:backup-marked. A backup creates the format.json of its place first, and that says what the place is. Without
// this order: a backup has an empty place, and copies; `fencepost init` finds no format.json there, and makes
// a log; its leader appends; the backup's next object comes into the slot that the leader would write
// next; the log is damaged, and nobody can append to it.
//
//mutant:replace as(b.format, true) => as(b.format, false)
func (b *making) claim(ctx context.Context) error {
	key, name := inspect.Format.Prefix(), b.to.log.Traits().Name
	body, err := document.Encode(key, as(b.format, true))
	if err != nil {
		return err
	}
	if _, there := b.have[key]; !there {
		if _, err = store.Create(ctx, b.to.log, key, body, nil); !errors.Is(err, store.ErrPrecondition) {
			b.marked = err == nil
			b.have[key] = int64(len(body))
			return err
		}
	}
	switch f, err := manifest.ReadFormat(ctx, b.to.log, nil); {
	case errors.Is(err, fence.ErrCorrupt) && b.noted != "":
		b.wasDamaged(key)
		return replace(ctx, b.to.log, key, body)
	case err != nil:
		return err
	case f.Log != b.format.Log:
		return fmt.Errorf("%s has log %v, and this is log %v: give a place of its own", name, f.Log, b.format.Log)
	case !f.Backup:
		return fmt.Errorf("%s is not empty, and holds no backup: give a place of its own", name)
	}
	return nil
}

// restart pins the newest version.
func (b *making) restart(ctx context.Context) error {
	if have, err := b.from.list(ctx, inspect.Manifest.Prefix()); err != nil {
		return err
	} else if len(have) == 0 {
		return errors.New("the log has no manifest yet, so there is nothing to pin: append something, or run `fencepost compact`, and try again")
	}
	table := b.reader.Table()
	// A log that is damaged is copied as it is: its copy may be sound.
	if _, b.damage = table.Read(ctx); ignore(b.damage, fence.ErrCorrupt) != nil {
		return b.damage
	}
	b.began = table.End()
	last := b.note
	b.note = note{Format: document.Format, Run: uuid.NewString(), Log: b.format.Log, Source: b.from.log.Traits().Name, Pin: last.Pin, Begun: time.Now().UTC(), Previous: last.Previous}
	if last.Done {
		b.note.Previous = &last.complete
	}
	// Of two logs of one identity, such as an original and its restored copy, only one has the backup's history.
	if c := b.note.Previous; c != nil && b.damage == nil {
		if has, err := table.Contains(ctx, reader.Place{Slot: c.Chain.Slot, Opened: c.Opened}); err != nil {
			return err
		} else if !has {
			return fmt.Errorf("%s has another history of this log, which went on differently: back up to a place of its own", b.to.log.Traits().Name)
		}
	}
	if b.format.Files != nil {
		b.note.Files = b.from.second.Traits().Name
	}
	if last.Pin == "" {
		// The name of the pin is in the note before the pin is there, so that a later call finds it.
		name := pinPrefix + b.to.log.Traits().Where()
		b.note.Pin = strings.ToValidUTF8(name[:min(len(name), 180)], "") + " " + uuid.NewString()[:8]
		if err := b.save(ctx); err != nil {
			return err
		}
	}
	// Pins of an earlier attempt have the same name. They go with this one.
	p, err := b.reader.Pin(ctx, b.note.Pin, 0, 0)
	if err != nil {
		return err
	}
	b.note.Version = p.Version
	err = b.save(ctx)
	if errors.Is(err, errOvertaken) {
		// The other backup may have ended, and removed all pins of this name, before this one was there.
		if rerr := b.reader.Release(ctx, p); rerr != nil {
			return fmt.Errorf("%w; its pin %q is not removed: %w", err, p.Name, rerr)
		}
	}
	if err != nil {
		return err
	}
	m, err := readHead(ctx, b.from.log, p.Version, b.limits)
	b.floor = m.Floor.Position
	return err
}

func (b *making) save(ctx context.Context) error {
	body, err := document.Encode(NoteKey, b.note)
	if err != nil {
		return err
	}
	// guard:backup-alone. A backup writes its note only over the one that it has written or read last.
	// Without this check: backup A verifies version 1, and sleeps; backup B to the same place completes
	// version 2, and deletes the manifest of version 1; A wakes, and notes that version 1 is complete; a
	// restore looks for version 1, and the backup of B is of no use.
	//
	//mutant:replace info, err = store.Swap(ctx, b.to.log, NoteKey, body, b.noted, nil) => err = replace(ctx, b.to.log, NoteKey, body)
	var info store.Info
	if b.noted == "" {
		info, err = store.Create(ctx, b.to.log, NoteKey, body, nil)
	} else {
		info, err = store.Swap(ctx, b.to.log, NoteKey, body, b.noted, nil)
	}
	if errors.Is(err, store.ErrPrecondition) {
		return fmt.Errorf("%w: %s: %w", errOvertaken, b.to.log.Traits().Name, err)
	}
	if err == nil {
		b.noted = info.Version
	}
	return err
}

// complete copies until the backup is whole, and says so in the note.
func (b *making) complete(ctx context.Context) error {
	for n := 1; ; n++ {
		err := b.run(ctx)
		if err == nil {
			break
		}
		if errors.Is(err, fence.ErrCorrupt) && !errors.Is(err, errGone) {
			if floor, ferr := b.newFloor(ctx); ferr == nil && b.floor.Before(floor) {
				err = fmt.Errorf("%w: %w", errGone, err) // it may be a zombie's junk in a hole that pruning has left
			}
		}
		if !errors.Is(err, errGone) || n == attempts {
			return err
		}
		b.Note("the log was compacted meanwhile; beginning with the newest version")
		if b.have, err = b.to.list(ctx, ""); err == nil {
			err = b.restart(ctx)
		}
		if err != nil {
			return err
		}
	}
	// The pins, before the note says that this is done: after that, another call may begin, and pin.
	pins, unread := b.reader.Pins(ctx)
	b.note.Done, b.note.Previous = true, nil
	if err := b.save(ctx); err != nil {
		return err
	}
	// A copy has one version. Those of earlier backups go last: until now the last complete one needs its own.
	var older []string
	old := needless(b.have, b.note.Version)
	for key := range b.have {
		if old(key) {
			older = append(older, key)
		}
	}
	if err := store.DeleteAll(ctx, b.to.log, older, nil); err != nil {
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

// run copies the version, and the chain after its floor, and checks the copy. It copies what the log has, by its names: also
// what nobody needs any more and no compactor has deleted yet. Whether all is there that is needed, verify tells.
func (b *making) run(ctx context.Context) error {
	*b.report = Report{Log: b.format.Log, Version: b.note.Version, Files: b.note.Files, Healed: b.report.Healed}
	b.done.Store(0)
	b.total.Store(0)
	// First what no pin holds. Then also the files of edits in the chain that was copied, which only the grace period holds.
	for _, kinds := range [][]string{{inspect.Data.Prefix()}, {inspect.Segment.Prefix(), inspect.List.Prefix(), inspect.File.Prefix()}} {
		if err := b.below(ctx, kinds); err != nil {
			return err
		}
	}
	for _, kind := range []inspect.Kind{inspect.Lock, inspect.CompactorLock} {
		if err := b.lock(ctx, kind); err != nil {
			return err
		}
	}
	// The manifest after all that it names: with it the copy can be read.
	if err := b.all(ctx, map[string]int64{inspect.Name{Kind: inspect.Manifest, Number: b.note.Version}.Key(): -1}); err != nil {
		return err
	}
	key := inspect.Format.Prefix()
	b.done.Add(b.have[key])
	b.count(key, b.have[key], !b.marked)
	return b.verified(ctx)
}

// sealSize is how long a seal is: it has only a header.
const sealSize = 128

// below copies what the log has below some prefixes. Of the chain before the floor it copies only seals, which the manifest names. If the
// copy has data there, the seal is what a zombie has put into the hole that pruning left.
func (b *making) below(ctx context.Context, prefixes []string) error {
	there, err := b.from.list(ctx, prefixes...)
	if err != nil {
		return err
	}
	maps.DeleteFunc(there, func(key string, size int64) bool {
		n := inspect.Parse(key)
		return !inBackups(n) || n.Kind == inspect.Data && n.Slot.Before(b.floor) && (size != sealSize || b.have[key] > sealSize)
	})
	return b.all(ctx, there)
}

// newFloor reads where the chain of the log begins now.
func (b *making) newFloor(ctx context.Context) (fence.Position, error) {
	have, err := b.from.list(ctx, inspect.Manifest.Prefix())
	if err != nil {
		return fence.Position{}, err
	}
	m, err := readHead(ctx, b.from.log, newest(have, inspect.Manifest), b.limits)
	return m.Floor.Position, err
}

// verified checks that the copy is whole, and that it has what the log had.
func (b *making) verified(ctx context.Context) error {
	// An earlier backup to this place has its manifest still. To the copy it would look like the rest of
	// what somebody has deleted.
	st := &shown{Store: b.to.log, hidden: needless(b.have, b.note.Version)}
	v, err := b.checked(ctx, st, nil)
	if errors.Is(err, fence.ErrCorrupt) {
		err = fmt.Errorf("%w. Run `fencepost verify` on the log: if the log is sound, run the same command again", err)
	}
	if err != nil {
		return err
	}
	if err := b.same(ctx, b.note.Version, v.Tail); err != nil {
		return err
	}
	b.note.Chain = ending{v.End, v.Tail}
	has, err := b.hasAll(ctx, st)
	if err != nil {
		return err
	}
	// guard:backup-chain. A backup counts only if the chain of its copy has the place where the log ended before the
	// backup pinned a version. Without this check: a
	// compactor deletes slot 1/4 and sleeps before it deletes 1/2 and 1/3; zombie Z puts its late seal
	// into the hole 1/4; a backup of an older version copies 1/2, 1/3 and this seal; the seal leads to
	// an epoch without objects, so the chain of the copy ends there; the backup lacks records of 1/4 and
	// later, which were acknowledged before it began.
	//
	//mutant:replace !has => has && false
	if !has {
		return fmt.Errorf("%w: the copy in %s ends after %d records, in slot %v, and the log went on before", errGone, b.to.log.Traits().Name, v.End, v.Tail)
	}
	b.report.Verified, b.report.First, b.report.End = !b.NoVerify, v.First, v.End
	return nil
}

// hasAll reports whether the chain of the copy goes on to where the log ended at first. If the log is damaged, that is not
// known: then the chain counts if nothing was pruned meanwhile, since a hole is where it could have gone wrong.
func (b *making) hasAll(ctx context.Context, st store.Store) (bool, error) {
	if _, copied := b.have[inspect.Name{Kind: inspect.Data, Slot: b.note.Chain.Slot}.Key()]; copied {
		return false, nil // it was lost since
	}
	r, err := reader.Open(ctx, st, nil)
	if err != nil {
		return false, err
	}
	table := r.Table()
	if _, err := table.Read(ctx); err != nil {
		return false, err
	}
	b.note.Opened = table.End().Opened
	if b.damage == nil {
		return table.Contains(ctx, b.began)
	}
	floor, err := b.newFloor(ctx)
	return floor == b.floor, err
}

// lock copies the newest lock of an election.
func (b *making) lock(ctx context.Context, kind inspect.Kind) error {
	have, err := b.from.list(ctx, kind.Prefix())
	epoch := newest(have, kind)
	if err != nil || epoch == 0 {
		return err
	}
	key := inspect.Name{Kind: kind, Number: epoch}.Key()
	body, _, err := store.Read(ctx, b.from.log, key, &store.ReadOptions{Limit: maxNote})
	if err != nil {
		return gone(err) // pruned meanwhile: there is a newer one
	}
	b.have[key] = int64(len(body))
	return replace(ctx, b.to.log, key, body)
}

// inBackups reports whether a backup may have an object of this name.
func inBackups(n inspect.Name) bool {
	switch n.Kind {
	case inspect.Lock, inspect.CompactorLock:
		return n.Number > 0
	case inspect.Data, inspect.Manifest, inspect.Segment, inspect.List:
		return true
	case inspect.File:
		return !strings.HasPrefix(n.ID, "_delta_log/") && !strings.HasPrefix(n.ID, "metadata/")
	}
	return false
}
