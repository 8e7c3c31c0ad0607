package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/store/probe"
)

// EpochGap is how far the epochs of a restored log are after those of the backup. The
// original may have had later leaders. Their zombies must not share an epoch with the leaders
// of the restored log, nor may a gate that has seen their tokens refuse the new ones.
const EpochGap = 1 << 20

// holder is the holder of the lock that a restore leaves.
const holder = "fencepost restore"

// restoring is a restore under way.
type restoring struct {
	*transfer
	n      restored
	format manifest.Format  // of the restored log
	source map[string]int64 // what the backup has of the version, by key, with its size
	// mark is the version of the format.json that this restore has put into its place, and run is the name in it.
	mark store.Version
	run  fence.ID
	// second is the mark in the second store, if there is one.
	second store.Info
}

// Restore copies a backup to an empty place, or goes on with that. If the log had the files of
// its table in a second store, Options.Files is the one for the restored log: no log that is a
// copy of the same one may use it. Other logs may.
func Restore(ctx context.Context, from, to store.Store, opts *Options) (*Report, error) {
	o := opts.defaults()
	if err := distinct(to, from, "the restored log", "the backup", "give each a place of its own"); err != nil {
		return nil, err
	}
	n, err := readNote(ctx, from)
	if err != nil {
		return nil, err
	}
	if n.updating {
		o.Note("the backup is being brought up to date, or that was interrupted; restoring version %d, which was complete before", n.Version)
	}
	r := &restoring{n: n, transfer: &transfer{
		Options: o, from: side{log: from}, to: side{log: to}.with(o.Files, manifest.Format{Log: n.Log}), report: &Report{Log: n.Log, Version: n.Version}, healed: map[string]bool{},
		look: "verify --copy",
	}}
	r.own = r.stillMine
	if err := r.filesIn(); err != nil {
		return nil, err
	}
	if err := roomy(to); err != nil {
		return nil, err
	}
	if r.have, err = (side{log: to}).list(ctx, ""); err != nil {
		return nil, err
	}
	if _, noted := r.have[NoteKey]; noted {
		return nil, fmt.Errorf("%s is not empty: it has a backup; nothing was copied; restore to an empty place", to.Traits().Name)
	}
	if _, there := r.have[inspect.Format.Prefix()]; there {
		if ready, err := r.before(ctx); err != nil {
			return nil, err
		} else if ready != nil {
			return r.report, r.recheck(ctx, ready)
		}
		delete(r.have, inspect.Format.Prefix()) // it is a mark
	}
	// All sizes before the first write: a refusal must leave the places as they were.
	if err := r.listed(ctx); err != nil {
		return nil, err
	}
	if err := r.fits(ctx); err != nil {
		return nil, err
	}
	return r.report, r.n.beside(ctx, from, to, r.restore(ctx))
}

// filesIn checks the second store for the files of the restored log.
func (r *restoring) filesIn() error {
	second := r.Files
	switch {
	case r.n.Files == "" && second != nil:
		return fmt.Errorf("%w: the log in the backup keeps its files in its own store; leave out --files", manifest.ErrFiles)
	case r.n.Files == "":
		return nil
	case second == nil:
		return fmt.Errorf("%w: the log in the backup kept the files of its table in another store, %s; say with --files URL where they go. Other logs may use that store, but not the one from which the backup was made",
			manifest.ErrFiles, r.n.Files)
	}
	r.report.Files = second.Traits().Name
	if err := apart(second, r.from.log); err != nil {
		return err
	}
	if err := distinct(second, r.to.log, "the store for files", "the restored log", "they lie one within the other: give each a place of its own"); err != nil {
		return fmt.Errorf("%w: %w", manifest.ErrFiles, err)
	}
	return nil
}

// before returns the format of the log that is in the place of a restore. It is nil if a restore has begun there, and has left its
// mark, which this one takes over. The mark of another version or log is an error.
func (r *restoring) before(ctx context.Context) (*manifest.Format, error) {
	_, info, err := store.Read(ctx, r.to.log, inspect.Format.Prefix(), &store.ReadOptions{Limit: maxNote})
	if err != nil {
		return nil, err
	}
	f, err := manifest.ReadFormat(ctx, r.to.log, nil) // if it is a later one, the swap of the mark fails
	if !errors.Is(err, manifest.ErrRestoring) {
		return &f, err
	}
	if f.Log != r.n.Log || f.Restoring.Version != r.n.Version {
		return nil, fmt.Errorf("a restore of version %d of log %v to %s has begun and has not ended, and this is version %d of log %v; nothing was copied; restore to an empty place",
			f.Restoring.Version, f.Log, r.to.log.Traits().Name, r.n.Version, r.n.Log)
	}
	r.mark = info.Version
	return nil, nil
}

// beside looks whether an error of a restore comes from an update of the backup that was completed meanwhile: that
// deletes what only the version before needs. Then this is said instead.
func (n *restored) beside(ctx context.Context, from, to store.Store, err error) error {
	original, _ := errors.AsType[*originalError](err)
	switch now, nerr := readNote(ctx, from); {
	case err == nil, nerr != nil:
		return err
	case now.Version != n.Version || now.Log != n.Log:
		return fmt.Errorf("the backup in %s was brought up to date meanwhile, from version %d to %d: restore to an empty place. %s: %w",
			from.Traits().Name, n.Version, now.Version, standing(ctx, to, ", and can be deleted unless another restore to there still runs"), err)
	case (errors.Is(err, errGone) || original != nil) && (now.Run != n.Run || now.updating != n.updating): // with a newer lock, or healed
		return fmt.Errorf("the backup in %s was brought up to date meanwhile: run the same command again: %w", from.Traits().Name, err)
	}
	return err
}

// standing says what is in the place of a restore that has failed. Another restore to there may have made it a log
// by now. So whoever speaks of deleting it says so only through this, as what follows if it is no log.
func standing(ctx context.Context, to store.Store, noLog string) string {
	name := to.Traits().Name
	switch _, err := manifest.ReadFormat(ctx, to, nil); {
	case errors.Is(err, manifest.ErrRestoring) && noLog == "":
		return fmt.Sprintf("Another restore to %s has begun meanwhile, and this one ends; if the other one is interrupted, run it again", name)
	case errors.Is(err, manifest.ErrRestoring), errors.Is(err, manifest.ErrNotInitialized):
		return fmt.Sprintf("What is in %s is no log%s", name, noLog)
	case err == nil:
		return fmt.Sprintf("There is a log in %s now, which this restore or another one has made: leave it as it is. `fencepost verify` checks it", name)
	default:
		return fmt.Sprintf("Whether there is a log in %s could not be found out (%v): delete nothing there", name, err)
	}
}

// listed finds what the backup has of this version.
func (r *restoring) listed(ctx context.Context) error {
	var err error
	if r.source, err = r.from.list(ctx, ""); err != nil {
		return err
	}
	r.leaveOut()
	old := needless(r.source, r.n.Version)
	maps.DeleteFunc(r.source, func(key string, _ int64) bool {
		n := inspect.Parse(key) // of the chain, an update that has not ended has copied what comes after its end
		// The holder of the newest lock leads elsewhere: the election here begins with the restore's own.
		return old(key) || n.Kind == inspect.Lock || n.Kind == inspect.Data && !n.Slot.Before(r.n.Chain.Slot)
	})
	if _, ok := r.source[inspect.Name{Kind: inspect.Manifest, Number: r.n.Version}.Key()]; !ok {
		return fmt.Errorf("the backup in %s has no manifest of version %d: it was brought up to date meanwhile, or it is damaged; nothing was copied; run this again, and if that says the same, restore another backup", r.from.log.Traits().Name, r.n.Version)
	}
	return nil
}

// leaveOut takes away what no backup has, and tells people. It would become a part of the log otherwise: a pin that nobody
// releases, a position of a consumer, a Delta table, or a program of somebody else.
//
// guard:restore-own. A restore copies only objects of the kinds that a backup has. Without this check: somebody adds
// the position of a consumer to a backup; the restored log has it; the consumer begins after records that
// it has never seen.
//
//mutant:replace !inBackups(n) => false
func (r *restoring) leaveOut() {
	var strange []string
	for key := range r.source {
		switch n := inspect.Parse(key); {
		case key == NoteKey, n.Kind == inspect.Format, n.Kind == inspect.Tmp:
			delete(r.source, key)
		case !inBackups(n):
			delete(r.source, key)
			strange = append(strange, key)
		}
	}
	if r.report.Strange = len(strange); r.report.Strange == 0 {
		return
	}
	slices.Sort(strange)
	first := strange[:min(len(strange), 3)]
	more := ""
	if n := len(strange) - len(first); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	r.Note("left out what is in %s and no part of a backup: %q%s", r.from.log.Traits().Name, first, more)
}

// fits refuses a place, or a store for files, that has something that is not in the backup.
func (r *restoring) fits(ctx context.Context) error {
	files := inspect.File.Prefix()
	if r.to.second != nil {
		for key := range r.have {
			if strings.HasPrefix(key, files) {
				return fmt.Errorf("%s is not empty: it has %s, and the files of the restored log go to %s; nothing was copied; restore to an empty place", r.to.log.Traits().Name, key, r.report.Files)
			}
		}
		there, err := r.to.list(ctx, files)
		if err != nil {
			return err
		}
		maps.Copy(r.have, there)
	}
	begun := r.mark != ""
	if !begun { // or it has lost its format.json since
		rec, err := r.lastLock(ctx)
		if err != nil {
			return err
		}
		begun = rec.Holder == holder
	}
	for key, size := range r.have {
		want, ok := r.source[key]
		name, place := r.to.where(key)
		switch kind := inspect.Parse(key).Kind; {
		case kind == inspect.Tmp:
		// guard:restore-locks. A place that has locks, and in which no restore has begun, is not empty.
		//
		//mutant:replace && begun => && (begun || true)
		case (kind == inspect.Lock || kind == inspect.CompactorLock) && begun:
		case !ok, kind == inspect.CompactorLock:
			return fmt.Errorf("%s is not empty: it has %s, which is not in the backup; nothing was copied; restore to an empty place", place, name)
		case size < want && kind != inspect.Data && kind != inspect.Manifest: // it was cut, and is copied again; a longer one stays, since then the backup is cut
		case size != want:
			return fmt.Errorf("%s is not empty: its %s has %d bytes, and that of the backup has %d; nothing was copied; restore to an empty place", place, name, size, want)
		}
	}
	return nil
}

// lastLock returns the newest lock in the place of a restore.
func (r *restoring) lastLock(ctx context.Context) (leader.Record, error) {
	e, err := leader.New(r.to.log, inspect.Lock.Prefix(), nil)
	if err != nil {
		return leader.Record{}, err
	}
	rec, err := e.Leader(ctx)
	return rec, ignore(err, leader.ErrNoLeader)
}

// recheck checks again what an earlier call has restored, if nobody has used the log since.
func (r *restoring) recheck(ctx context.Context, f *manifest.Format) error {
	name := r.to.log.Traits().Name
	switch {
	case f.Backup:
		return fmt.Errorf("%s is not empty: it has a backup; nothing was copied; restore to an empty place", name)
	case f.Log != r.n.Log:
		return fmt.Errorf("there is another log in %s: log %v, and the backup is of log %v; nothing was copied; restore to an empty place", name, f.Log, r.n.Log)
	}
	if r.Files != nil {
		if _, _, err := manifest.ClaimFiles(ctx, r.to.log, r.Files, f.Log, nil); err != nil {
			return err
		}
	}
	rec, err := r.lastLock(ctx)
	if err != nil {
		return err
	}
	if newest(r.have, inspect.Manifest) != r.n.Version || f.Restored != r.n.Version || rec.Holder != holder {
		return fmt.Errorf("there is a log in %s already: it is that of the backup, and has another version or has been used since; nothing was copied; `fencepost verify` checks it. Restore to another place only if this log is not wanted", name)
	}
	files, err := r.to.list(ctx, inspect.File.Prefix())
	if err != nil {
		return err
	}
	maps.Copy(r.have, files)
	for key, size := range r.have {
		r.count(key, size, true)
	}
	v, _, err := r.check(ctx, r.to.log, r.Files)
	if err == nil {
		err = r.n.Chain.check(ending{v.End, v.Tail}, r.to.log, "the backup may still have them")
	}
	if errors.Is(err, fence.ErrCorrupt) {
		return fmt.Errorf("%w. It was restored before, and was damaged since, or was not verified then: restore again, to an empty place", err)
	}
	if err == nil {
		r.report.Already, r.report.Verified, r.report.Epoch, r.report.First, r.report.End = true, !r.NoVerify, rec.Epoch+1, v.First, v.End
	}
	return err
}

// restore copies, checks the copy, and then makes it a log. If the copy is not sound, it never becomes one:
// nobody can append to it, and a later call goes on.
func (r *restoring) restore(ctx context.Context) error {
	f, err := manifest.ReadFormat(ctx, r.from.log, nil)
	if err != nil {
		return err
	}
	r.format, r.limits = as(f, false), f.Limits
	r.format.Restored = r.n.Version
	places := []store.Store{r.to.log}
	if r.to.second != nil { // rules for what others keep there do not matter
		own, err := store.Sub(r.to.second, strings.TrimSuffix(r.to.dir, "/"))
		if err != nil {
			return err
		}
		places = append(places, own)
	}
	if err := ageless(ctx, &r.Options, places...); err != nil {
		return err
	}
	if err := r.claim(ctx); err != nil {
		return err
	}
	if err := r.take(ctx); err != nil {
		return err
	}
	r.Progress("probing", 0, 0)
	// guard:restore-probed. A restore probes the place of the log before it copies anything there, as for a
	// new log, and its format.json has this report. Without this check: a log is restored to a server that
	// ignores conditions; the report of the original's store says that all is well; two leaders append to
	// one slot, and both are told that their records are safe.
	//
	//mutant:replace err != nil => err != nil && false
	if r.format.Probe, err = probe.Run(ctx, r.to.log, r.Probe); err != nil {
		return fmt.Errorf("%s; nothing was copied but the mark of this restore, %s: %w", r.to.log.Traits().Name, inspect.Format.Prefix(), err)
	}
	items := maps.Clone(r.source)
	for key := range items {
		if inspect.Parse(key).Kind != inspect.CompactorLock {
			continue
		}
		items[key] = -1 // a backup that is made meanwhile may replace it
		if _, there := r.have[key]; there {
			delete(items, key)
		}
	}
	if err := r.all(ctx, items); err != nil {
		return err
	}
	if err := r.verified(ctx); err != nil {
		if !errors.Is(err, fence.ErrCorrupt) {
			return err
		}
		return fmt.Errorf("%w. %s", err, standing(ctx, r.to.log, ". Run the same command again: it copies what is damaged, if it can. If that fails too, run `fencepost verify --copy` on the backup: if the backup is sound, restore it to an empty place; if it is damaged, restore another one to there"))
	}
	// Last, what makes it a log.
	return r.makeLog(ctx)
}

// claim marks the second store as that of the restored log, before the first copy, and completes the log's format. So of all restores
// of one backup with one store for files, those to one place go on, and all others are refused, no matter how long any of them
// sleeps. A restore that is refused later leaves its mark: a delete could come late and hit the mark of another restore. The same
// restore goes on with it.
func (r *restoring) claim(ctx context.Context) (err error) {
	if r.to.second == nil {
		return nil
	}
	if r.format.Files, r.second, err = manifest.ClaimFiles(ctx, r.to.log, r.to.second, r.n.Log, cmp.Or(r.Probe, &probe.Options{})); err != nil {
		return fmt.Errorf("nothing was copied: %w", err)
	}
	// Again, now that no other restore can begin: since the first listing another one may have
	// come and gone. Its files are not this log's.
	maps.DeleteFunc(r.have, func(key string, _ int64) bool { return strings.HasPrefix(key, inspect.File.Prefix()) })
	if err := r.fits(ctx); err != nil {
		return fmt.Errorf("%w. The mark %s is left in %s: restore to %s again when that is empty, or give another store with --files", err, r.second.Key, r.report.Files, r.to.log.Traits().Where())
	}
	return nil
}

// take makes the place that of this restore, before anything else is written there. The mark is the format.json, which makes
// the place a log at the very end: makeLog swaps exactly this mark. So of all writers, restores and programs that
// make logs there only one gets the place. A restore that was interrupted has left its mark, and a later call takes it over.
//
// guard:restore-first. A restore creates format.json before it copies, with a mark that all programs refuse. Without this
// order: a restore probes an empty place; a supervised writer of this URL makes a log there, and its record is
// acknowledged; the restore copies its slots among those of this log; nobody can read the record, or append.
//
//mutant:replace f.Restoring = mark => f.Restoring = nil
func (r *restoring) take(ctx context.Context) error {
	mark := &manifest.Restoring{Version: r.n.Version, Run: fence.ID(uuid.New())}
	f := as(r.format, false)
	f.Restoring = mark
	f.Probe = nil
	key := inspect.Format.Prefix()
	body, err := document.Encode(key, f)
	if err != nil {
		return err
	}
	var info store.Info
	if r.mark == "" {
		info, err = store.Create(ctx, r.to.log, key, body, nil)
	} else {
		info, err = store.Swap(ctx, r.to.log, key, body, r.mark, nil)
	}
	if errors.Is(err, store.ErrPrecondition) {
		return fmt.Errorf("%s: %w", standing(ctx, r.to.log, ""), err)
	}
	r.mark, r.run = info.Version, mark.Run
	return err
}

// stillMine refuses to go on with a restore to a place that is not that of this restore any more.
func (r *restoring) stillMine(ctx context.Context) error {
	f, err := manifest.ReadFormat(ctx, r.to.log, nil)
	if errors.Is(err, manifest.ErrRestoring) && f.Restoring.Run == r.run {
		return nil
	}
	if err == nil || errors.Is(err, manifest.ErrRestoring) || errors.Is(err, manifest.ErrNotInitialized) {
		return errors.New(standing(ctx, r.to.log, ""))
	}
	return err
}

// verified checks the copy as the log that it will be, and raises its epochs.
func (r *restoring) verified(ctx context.Context) error {
	key := inspect.Format.Prefix()
	body, err := document.Encode(key, r.format)
	if err != nil {
		return err
	}
	format := memstore.New(nil)
	info, err := store.Create(ctx, format, key, body, nil)
	if err != nil {
		return err
	}
	v, err := r.checked(ctx, &shown{Store: r.to.log, instead: map[string]other{key: {format, key, info}}}, r.to.second)
	if err == nil {
		err = r.n.Chain.check(ending{v.End, v.Tail}, r.to.log, fmt.Sprintf("restore another backup, to another place than %s; or look for older versions of these objects in the place of the backup", r.to.log.Traits().Name))
	}
	if err == nil {
		err = r.same(ctx, r.n.Version, v.Tail)
	}
	if err != nil {
		return err
	}
	r.report.Verified, r.report.First, r.report.End = !r.NoVerify, v.First, v.End
	m, err := readHead(ctx, r.to.log, r.n.Version, r.limits)
	if err == nil {
		r.report.Epoch, err = r.raise(ctx, max(v.Tail.Epoch, m.Roles["writer"].Epoch))
	}
	if err != nil {
		return err
	}
	// A copy that was read whole is sound, whatever the backup is now.
	if now, err := readNote(ctx, r.from.log); r.NoVerify && (err != nil || now.Version != r.n.Version || now.Log != r.n.Log) {
		return errors.Join(errors.New("the version that was restored is not in the backup any more"), err)
	}
	return nil
}

// raise makes the election of a restored log go on at a later epoch than the one in the backup, and
// returns it. Written is the last epoch that the manifest or the chain knows.
func (r *restoring) raise(ctx context.Context, written fence.Epoch) (fence.Epoch, error) {
	original, err := leader.New(r.from.log, inspect.Lock.Prefix(), nil)
	if err != nil {
		return 0, err
	}
	base, err := original.Leader(ctx)
	if ignore(err, leader.ErrNoLeader) != nil {
		return 0, err
	}
	least := min(max(base.Epoch, base.Next, written)+EpochGap, 1<<62)
	who := &leader.Options{Identity: holder, NoPrune: true}
	e, err := leader.New(r.to.log, inspect.Lock.Prefix(), who)
	if err != nil {
		return 0, err
	}
	rec, err := e.Leader(ctx)
	if ignore(err, leader.ErrNoLeader) != nil {
		return 0, err
	}
	// guard:restore-epochs. A restore takes a lock for its own only if that is a gap of epochs after the
	// newest lock in the backup.
	//
	//mutant:replace rec.Epoch >= least => true
	if rec.Holder == who.Identity && rec.Epoch >= least {
		return rec.Epoch + 1, nil // done by an earlier call
	}
	if err := r.stillMine(ctx); err != nil {
		return 0, err
	}
	// It deposes nobody, and waits for nobody.
	campaign, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	who.Hooks.Leader = func(rec leader.Record) {
		if rec.Holder != who.Identity && rec.State != leader.Expired {
			stop(fmt.Errorf("%s leads in %s, in epoch %v; restore to an empty place", rec.Holder, r.to.log.Traits().Name, rec.Epoch))
		}
	}
	who.MinEpoch = least
	if e, err = leader.New(r.to.log, inspect.Lock.Prefix(), who); err != nil {
		return 0, err
	}
	term, err := e.Campaign(campaign)
	if err != nil {
		return 0, cmp.Or(r.stillMine(ctx), err) // another restore may have made a log here
	}
	return term.Epoch() + 1, term.Resign(ctx)
}

// makeLog makes the place of a restore a log, unless it is not that of this restore any more.
//
// guard:restore-swap. A restore makes its place a log by a swap of its own mark. Without this condition: a restore
// hangs; an operator runs it again, the log lives, is deleted, and another backup is being restored to there; the first
// one wakes, and its format.json makes half a log of it.
//
//mutant:replace _, err = store.Swap(ctx, r.to.log, key, body, r.mark, nil) => err = replace(ctx, r.to.log, key, body)
func (r *restoring) makeLog(ctx context.Context) error {
	key := inspect.Format.Prefix()
	body, err := document.Encode(key, r.format)
	if err != nil {
		return err
	}
	if err := r.markStays(ctx); err != nil {
		return err
	}
	_, err = store.Swap(ctx, r.to.log, key, body, r.mark, nil)
	if errors.Is(err, store.ErrPrecondition) {
		return fmt.Errorf("%s: %w", standing(ctx, r.to.log, ""), err)
	}
	if err != nil {
		return fmt.Errorf("making %s a log: %w", r.to.log.Traits().Name, err)
	}
	r.count(key, int64(len(body)), false)
	return nil
}

// markStays refuses to make a log if the second store for its files is not marked any more as it was.
//
// guard:restore-mark-last. A restore reads the mark of its log again after the last copy, and before
// it creates format.json. Without this check: a restore to A hangs; the operator takes it for dead,
// deletes its mark, and restores to B with the same store for files; log B lives; the restore to A
// wakes and creates format.json; both logs have leaders of the same epochs; the compactor of B takes
// committed files of A for orphans, and deletes them.
//
//mutant:replace r.to.second == nil => true
func (r *restoring) markStays(ctx context.Context) error {
	if r.to.second == nil {
		return nil
	}
	body, now, err := store.Read(ctx, r.to.second, r.second.Key, &store.ReadOptions{Limit: maxNote})
	if ignore(err, store.ErrNotFound) != nil || now.Version == r.second.Version {
		return err
	}
	m := struct {
		Where string `json:"where"`
	}{"nowhere"}
	_ = document.Decode(r.second.Key, body, &m)
	return fmt.Errorf("%w: the mark of this restore, %s in %s, was deleted or replaced meanwhile: it names %s now. %s", manifest.ErrFiles, r.second.Key, r.report.Files, m.Where, standing(ctx, r.to.log, ", and can be deleted unless another restore to there still runs"))
}
