package backup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/files"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/probe"
	"github.com/fencepost/fencepost/verify"
)

// EpochGap is how far the epochs of a restored log are after those of the backup. The
// original may have had later leaders. Their zombies must not share an epoch with the leaders
// of the restored log, nor may a gate that has seen their tokens refuse the new ones.
const EpochGap = 1 << 20

// Restore copies a backup to an empty place, or goes on with that. If the log had the files of
// its table in a second store, Options.Files is the one for the restored log: no log that is a
// copy of the same one may use it. Other logs may.
func Restore(ctx context.Context, from, to store.Store, opts *Options) (*Report, error) {
	o := opts.defaults()
	if err := distinct(to, from, "the restored log", "the backup"); err != nil {
		return nil, err
	}
	n, err := readNote(ctx, from)
	if err != nil {
		return nil, err
	}
	if n.updating {
		o.Note("the backup is being brought up to date, or that was interrupted; restoring version %d, which was complete before", n.Version)
	}
	t := begin(from, to, &Report{Log: n.Log, Version: n.Version}, &o)
	t.advice = "is not empty, and differs from the backup: restore to an empty place"
	t.look = "verify --copy"
	t.own = t.stillMine
	if err := t.filesIn(n, o.Files); err != nil {
		return nil, err
	}
	if t.have, err = existing(ctx, to, ""); err != nil {
		return nil, err
	}
	_, there := t.have[layout.FormatKey]
	if _, noted := t.have[NoteKey]; noted {
		return nil, fmt.Errorf("%s is not empty: it has a backup; nothing was copied; restore to an empty place", to.Traits().Name)
	}
	var before *manifest.Restoring
	if there {
		before, t.mark, err = begunBefore(ctx, to, n)
	}
	if there = there && before == nil; err == nil && !there {
		delete(t.have, layout.FormatKey) // it is a mark
		err = t.ownFiles()
	}
	if err == nil {
		err = t.haveFiles(ctx)
	}
	if err == nil && !there {
		err = t.freeFiles(ctx, n.Log)
	}
	if err != nil {
		return nil, err
	}
	if there {
		for key, size := range t.have {
			t.count(key, size, true)
		}
		return t.report, recheck(ctx, to, n, t.report, &o)
	}
	items, source, err := t.listed(ctx, n)
	if err != nil {
		return nil, err
	}
	// All sizes before the first copy: a refusal must leave the place as it was.
	if err := t.fits(source); err != nil {
		return nil, err
	}
	return t.report, n.beside(ctx, from, to, t.restore(ctx, n, items, source, &o))
}

// restored is the note of a backup, with the version that can be restored.
type restored struct {
	note
	// updating says that a later version has begun in the same place.
	updating bool
}

// readNote reads which version of a backup can be restored.
func readNote(ctx context.Context, from store.Store) (n restored, err error) {
	body, _, err := store.Read(ctx, from, NoteKey, &store.ReadOptions{Limit: 1 << 20})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return n, fmt.Errorf("%s has no %s: it is not a backup that `fencepost backup` made", from.Traits().Name, NoteKey)
	case err != nil:
		return n, err
	}
	if err := document.Decode(NoteKey, body, &n.note, needsFiles); err != nil {
		return n, fmt.Errorf("the backup in %s cannot be restored; restore another one, or an older version of this object: %w", from.Traits().Name, err)
	}
	switch {
	case !n.Done && n.Previous != nil:
		n.Version, n.Chain, n.updating = n.Previous.Version, &n.Previous.Chain, true
	case !n.Done:
		return n, fmt.Errorf("the backup in %s is not complete: run `fencepost backup` again, or restore another one", from.Traits().Name)
	}
	return n, nil
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
	switch _, err := manifest.ReadFormat(ctx, to, nil); {
	case errors.Is(err, manifest.ErrRestoring) && noLog == "":
		return fmt.Sprintf("Another restore to %s has begun meanwhile, and this one ends; if the other one is interrupted, run it again", to.Traits().Name)
	case errors.Is(err, manifest.ErrRestoring):
		return fmt.Sprintf("What is in %s is no log%s", to.Traits().Name, noLog)
	case err == nil:
		return fmt.Sprintf("There is a log in %s now, which this restore or another one has made: leave it as it is. `fencepost verify` checks it", to.Traits().Name)
	case errors.Is(err, manifest.ErrNotInitialized):
		return fmt.Sprintf("What is in %s is no log%s", to.Traits().Name, noLog)
	default:
		return fmt.Sprintf("Whether there is a log in %s could not be found out (%v): delete nothing there", to.Traits().Name, err)
	}
}

// errUpdated: the backup has another version than when the restore began.
var errUpdated = errors.New("the version that was restored is not in the backup any more")

// listed returns what is to be copied, and all that the backup has of this version.
func (t *transfer) listed(ctx context.Context, n restored) (items []item, source map[string]int64, err error) {
	if source, err = existing(ctx, t.from, ""); err != nil {
		return nil, nil, err
	}
	maps.DeleteFunc(source, func(key string, _ int64) bool { return n.later(key) })
	t.leaveOut(source)
	for _, key := range oldLocks(source) {
		delete(source, key)
	}
	if _, ok := source[layout.ManifestKey(n.Version)]; !ok {
		return nil, nil, fmt.Errorf("the backup in %s has no manifest of version %d: it was brought up to date meanwhile, or it is damaged; nothing was copied; run this again, and if that says the same, restore another backup", t.from.Traits().Name, n.Version)
	}
	for key, size := range source {
		kind := layout.KindOf(key)
		lock := kind == layout.KindLock || kind == layout.KindCompactorLock
		_, there := t.have[key]
		there = there && lock // an earlier call may have deposed its holder
		if key != NoteKey && key != layout.FormatKey && !strings.HasPrefix(key, layout.TmpPrefix) && !there {
			t.total.Add(size)
			if lock {
				size = -1 // a backup that is made meanwhile may replace it
			}
			items = append(items, item{key: key, size: size})
		}
	}
	return items, source, nil
}

// leaveOut takes away what no backup has, and tells people. It would become a part of the log otherwise: a pin that nobody
// releases, a position of a consumer, a Delta table, or a program of somebody else.
//
// guard:restore-own. A restore copies only objects of the kinds that a backup has. Without this check: somebody adds
// the position of a consumer to a backup; the restored log has it; the consumer begins after records that
// it has never seen.
//
//mutant:replace !inBackups(key) => false
func (t *transfer) leaveOut(source map[string]int64) {
	var strange []string
	for key := range source {
		if key == NoteKey || key == layout.FormatKey || strings.HasPrefix(key, layout.TmpPrefix) {
			continue
		}
		if !inBackups(key) {
			strange = append(strange, key)
			delete(source, key)
		}
	}
	if t.report.Strange = len(strange); t.report.Strange == 0 {
		return
	}
	slices.Sort(strange)
	first := strange[:min(len(strange), 3)]
	more := ""
	if n := len(strange) - len(first); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	t.note("left out what is in %s and no part of a backup: %q%s", t.from.Traits().Name, first, more)
}

// inBackups reports whether a backup may have an object of this name.
func inBackups(key string) bool {
	switch layout.KindOf(key) {
	case layout.KindLock, layout.KindCompactorLock:
		prefix, _, _ := strings.Cut(key, "/")
		return key != layout.CandidateKey(prefix+"/")
	case layout.KindData, layout.KindManifest, layout.KindSegment, layout.KindList:
		return true
	case layout.KindFile:
		return !strings.HasPrefix(key, layout.DeltaPrefix)
	}
	return false
}

// restore copies, checks the copy, and then makes it a log. If the copy is not sound, it never becomes one:
// nobody can append to it, and a later call goes on.
func (t *transfer) restore(ctx context.Context, n restored, items []item, source map[string]int64, o *Options) error {
	f, err := manifest.ReadFormat(ctx, t.from, nil)
	if err != nil {
		return err
	}
	f, t.limits = asLog(f, nil), f.Limits
	second := o.Files
	if second != nil { // rules for what others keep there do not matter
		second = files.View(second, f.Log)
	}
	if err := ageless(ctx, o, t.to, second); err != nil {
		return err
	}
	if err := t.take(ctx, f, n); err != nil {
		return err
	}
	// guard:restore-probed. A restore probes the place of the log before it copies anything there, as for a
	// new log, and its format.json has this report. Without this check: a log is restored to a server that
	// ignores conditions; the report of the original's store says that all is well; two leaders append to
	// one slot, and both are told that their records are safe.
	//
	//mutant:replace err != nil => err != nil && false
	if f.Probe, err = probing(ctx, t.to, o); err != nil {
		return err
	}
	if err := t.claim(ctx, &f, source, o); err != nil {
		return err
	}
	t.tryServer(ctx)
	if err := t.all(ctx, items); err != nil {
		return err
	}
	var m *state.Manifest
	if err := t.healing(ctx, func() (err error) {
		if m, err = state.With(t.to, f, nil).Newest(ctx); err == nil {
			return n.Chain.endOf(ctx, t.to, &f, m, lost(t.to))
		}
		if errors.Is(err, fence.ErrCorrupt) {
			err = &damagedError{keys: []string{layout.ManifestKey(n.Version)}, err: err}
		}
		return err
	}); err != nil {
		return t.unsound(ctx, err)
	}
	if t.report.Epoch, err = t.raise(ctx, m.Roles[layout.Writer].Epoch); err != nil {
		return err
	}
	t.report.ends(m, n.Chain)
	format, err := document.Encode(layout.FormatKey, f)
	if err != nil {
		return err
	}
	if err := t.healing(ctx, func() error {
		return check(ctx, formatted{t.to, format}, o.Files, n.Chain, t.report, o)
	}); err != nil {
		return t.unsound(ctx, err)
	}
	// A copy that was read whole is sound, whatever the backup is now.
	if now, err := readNote(ctx, t.from); !t.report.Verified && (err != nil || now.Version != n.Version || now.Log != n.Log) {
		return errors.Join(errUpdated, err)
	}
	// Last, what makes it a log.
	return t.restoreFormat(ctx, &f)
}

// unsound says what to do about a copy that must not become a log.
func (t *transfer) unsound(ctx context.Context, err error) error {
	if !errors.Is(err, fence.ErrCorrupt) {
		return err
	}
	return fmt.Errorf("%w. %s", err, standing(ctx, t.to, ". Run the same command again: it copies what is damaged, if it can. If that fails too, run `fencepost verify --copy` on the backup: if the backup is sound, restore it to an empty place; if it is damaged, restore another one to there"))
}

// ends sets which records a copy has, as far as that is known without reading it.
func (r *Report) ends(m *state.Manifest, chain *ending) {
	r.First, r.End = m.First(), m.Tail().Offset
	if chain != nil {
		r.End = chain.Records
	}
}

// later reports whether an object of a backup does not belong to the version that is restored: an
// update that has not ended has copied it, or has not deleted it yet.
func (n *note) later(key string) bool {
	p, data := layout.ParseDataKey(key)
	return other(key, n.Version) || data && n.Chain != nil && !p.Before(n.Chain.Slot)
}

// lost says what to do about a backup that has lost the end of its chain.
func lost(to store.Store) string {
	return fmt.Sprintf("restore another backup, to another place than %s; or look for older versions of these objects in the place of the backup", to.Traits().Name)
}

// probing probes the place of the restored log.
func probing(ctx context.Context, to store.Store, o *Options) (*probe.Report, error) {
	o.Progress("probing", 0, 0)
	report, err := probe.Run(ctx, to, o.Probe)
	if err != nil {
		return nil, fmt.Errorf("%s; nothing was copied but the mark of this restore, %s: %w", to.Traits().Name, layout.FormatKey, err)
	}
	return report, nil
}

// ageless refuses places whose buckets delete objects by their age, since no check there would succeed. Nil is no
// place. With Options.NoVerify it only tells people.
func ageless(ctx context.Context, o *Options, places ...store.Store) error {
	for _, st := range places {
		if st == nil {
			continue
		}
		found, err := verify.Rules(ctx, st, nil)
		switch {
		case errors.Is(err, store.ErrDenied), err != nil && o.NoVerify:
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

// fits refuses a place, or a store for files, that has something that is not in the backup.
func (t *transfer) fits(source map[string]int64) error {
	for key, size := range t.have {
		want, ok := source[key]
		w, _, name := t.way(key)
		switch {
		case strings.HasPrefix(key, layout.TmpPrefix), layout.KindOf(key) == layout.KindLock, layout.KindOf(key) == layout.KindCompactorLock:
		case !ok:
			return fmt.Errorf("%s is not empty: it has %s, which is not in the backup; nothing was copied; restore to an empty place", w.to.Traits().Name, name)
		case size < want && unique(key): // it was cut, and is copied again; a longer one stays, since then the backup is cut
		case size != want:
			return fmt.Errorf("%s is not empty: its %s has %d bytes, and that of the backup has %d; nothing was copied; restore to an empty place", w.to.Traits().Name, name, size, want)
		}
	}
	return nil
}

// unique reports whether the name of an object is in no other history, so that the one in the destination is its copy.
func unique(key string) bool {
	kind := layout.KindOf(key)
	return kind == layout.KindSegment || kind == layout.KindFile || kind == layout.KindList
}

// recheck checks again what an earlier call has restored, if nobody has used the log since.
func recheck(ctx context.Context, to store.Store, n restored, report *Report, o *Options) error {
	name := to.Traits().Name
	f, err := manifest.ReadFormat(ctx, to, nil)
	switch {
	case err != nil:
		return err
	case f.Backup:
		return fmt.Errorf("%s is not empty: it has a backup; nothing was copied; restore to an empty place", name)
	case f.Log != n.Log:
		return fmt.Errorf("there is another log in %s: log %v, and the backup is of log %v; nothing was copied; restore to an empty place", name, f.Log, n.Log)
	}
	if err := marked(ctx, to, &f, o.Files); err != nil {
		return err
	}
	e, err := leader.New(to, layout.LockPrefix, nil)
	if err != nil {
		return err
	}
	rec, err := e.Leader(ctx)
	if ignore(err, leader.ErrNoLeader) != nil {
		return err
	}
	log, err := state.Open(ctx, to, nil)
	if err != nil {
		return err
	}
	m, err := log.Newest(ctx)
	switch {
	case err != nil:
		return err
	case m.Version != n.Version, rec.Holder != layout.RestoreHolder:
		return fmt.Errorf("there is a log in %s already: it is that of the backup, and has another version or has been used since; nothing was copied; `fencepost verify` checks it. Restore to another place only if this log is not wanted", name)
	}
	if err = n.Chain.endOf(ctx, to, &f, m, "the backup may still have them"); err == nil {
		report.Epoch = rec.Epoch + 1
		report.ends(m, n.Chain)
		// The log may be in use already, so its end is not compared again.
		err = check(ctx, to, o.Files, nil, report, o)
	}
	if errors.Is(err, fence.ErrCorrupt) {
		return fmt.Errorf("%w. It was restored before, and was damaged since, or was not verified then: restore again, to an empty place", err)
	}
	return err
}

// raise makes the election of a restored log go on at a later epoch than the one in the backup, and
// returns it. Written is the last epoch that the manifest knows.
func (t *transfer) raise(ctx context.Context, written fence.Epoch) (fence.Epoch, error) {
	st := t.to
	original, err := leader.New(t.from, layout.LockPrefix, nil)
	if err != nil {
		return 0, err
	}
	base, err := original.Leader(ctx)
	if ignore(err, leader.ErrNoLeader) != nil {
		return 0, err
	}
	least := fence.Epoch(min(uint64(max(base.Epoch, base.Next, written))+EpochGap, 1<<62))
	who := &leader.Options{Identity: layout.RestoreHolder, NoPrune: true}
	e, err := leader.New(st, layout.LockPrefix, who)
	if err != nil {
		return 0, err
	}
	rec, err := e.Leader(ctx)
	if ignore(err, leader.ErrNoLeader) != nil {
		return 0, err
	}
	// guard:restore-epochs. A restore takes a lock for its own only if that is a gap of epochs after the
	// newest lock in the backup. Without this check: a restored log is backed up at once, so that its newest
	// lock is that of the restore; it lives on with later epochs, and is lost; a restore of the backup finds
	// the lock, and makes no gap; a zombie shares its epoch with a new leader, and gates accept both.
	//
	//mutant:replace rec.Epoch >= least => true
	if rec.Holder == who.Identity && rec.Epoch >= least {
		return rec.Epoch + 1, nil // done by an earlier call
	}
	// Another restore may have made a log here meanwhile, which has a leader.
	if err := t.stillMine(ctx); err != nil {
		return 0, err
	}
	// Its holder leads elsewhere, if at all: nobody need wait for it here.
	if _, err := e.StepDown(ctx, &leader.StepDownOptions{Reason: "restored from a backup", Immediate: true}); ignore(err, leader.ErrNoLeader) != nil {
		return 0, err
	}
	who.MinEpoch = uint64(least)
	if e, err = leader.New(st, layout.LockPrefix, who); err != nil {
		return 0, err
	}
	term, err := e.Campaign(ctx)
	if err != nil {
		return 0, err
	}
	return term.Epoch() + 1, term.Resign(ctx)
}

// ignore returns err unless it is what.
func ignore(err, what error) error {
	if errors.Is(err, what) {
		return nil
	}
	return err
}
