package backup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/probe"
)

// NoteKey is the object of a backup that says what it is. A log does not have it.
const NoteKey = "backup.json"

// maxNote bounds the note and format.json, in bytes.
const maxNote = 1 << 20

// note is the document NoteKey.
type note struct {
	Format int      `json:"format"`
	Log    fence.ID `json:"log"`
	Source string   `json:"source"`
	// Files is the second store that had the files of the table; empty if the log has none.
	// In the backup these files are under their keys in the log.
	Files string `json:"files,omitempty"`
	// Pin is the name of the pin that holds the version until the backup is complete. It ends with random digits, which tell
	// this place from others of the same URL, such as file:///backup of another machine.
	Pin   string    `json:"pin"`
	Begun time.Time `json:"begun"`
	// Run is new with each version that a backup begins: two processes never write the same note.
	Run string `json:"run"`
	// Done says that the backup is complete. Then complete is what can be restored.
	Done bool `json:"done"`
	complete
	// Previous is the complete backup that is being brought up to date. Until Done is set it can be
	// restored: nothing that it has is deleted or replaced before.
	Previous *complete `json:"previous,omitempty"`
}

// complete is a backup that is complete.
type complete struct {
	// Version is 0 until the first one is pinned.
	Version uint64 `json:"version"`
	// Chain is where the chain of the copy ends.
	Chain ending `json:"chain,omitzero"`
	// Opened is the nonce of the seal that opened the epoch of this place: no other history of the log has it.
	Opened fence.ID `json:"opened,omitzero"`
}

// ending is where the chain of a copy ends. The chain itself cannot tell: without its last objects it
// looks like one that was never longer.
type ending struct {
	// Records is the number of all records, Slot the first slot after the chain.
	Records uint64         `json:"records"`
	Slot    fence.Position `json:"slot"`
}

// check refuses a copy that ends elsewhere.
func (e ending) check(at ending, st store.Store, advice string) error {
	// guard:backup-end. A copy counts only if its chain ends where the note of the backup says. Without
	// this check: the place of a backup loses the last object of the chain, which has acknowledged
	// records; a restore walks the chain to the first empty slot, and calls the log whole; a leader
	// goes on there; consumers read other records at the offsets of those that were lost.
	//
	//mutant:replace e == at => true
	if e == at {
		return nil
	}
	if e.Records <= at.Records && e.Slot.Before(at.Slot) {
		return fmt.Errorf("the log in %s has %d records, and the backup has %d: it has been used since; use an empty place instead", st.Traits().Name, at.Records, e.Records)
	}
	return fmt.Errorf("%w: the log in %s ends after %d records, in slot %v, and the backup ended after %d records, in slot %v: objects at its end are lost; %s",
		fence.ErrCorrupt, st.Traits().Name, at.Records, at.Slot, e.Records, e.Slot, advice)
}

// restored is the note of a backup, with the version that can be restored.
type restored struct {
	note
	// updating says that a later version has begun in the same place.
	updating bool
}

// readNote reads which version of a backup can be restored.
func readNote(ctx context.Context, from store.Store) (n restored, err error) {
	body, _, err := store.Read(ctx, from, NoteKey, &store.ReadOptions{Limit: maxNote})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return n, fmt.Errorf("%s has no %s: it is not a backup that `fencepost backup` made", from.Traits().Name, NoteKey)
	case err != nil:
		return n, err
	}
	if err := document.Decode(NoteKey, body, &n.note); err != nil {
		return n, fmt.Errorf("the backup in %s cannot be restored; restore another one, or an older version of this object: %w", from.Traits().Name, err)
	}
	switch {
	case !n.Done && n.Previous != nil:
		n.complete, n.updating = *n.Previous, true
	case !n.Done:
		return n, fmt.Errorf("the backup in %s is not complete: run `fencepost backup` again, or restore another one", from.Traits().Name)
	}
	return n, nil
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
	// Already says that an earlier call has restored the backup, and this one has changed nothing.
	Already bool `json:"already,omitempty"`
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
	// NoVerify leaves out reading the copy. What it names must be there with its size all the same.
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

// distinct refuses to have a log and its backup in one place, or one within the other: what lists,
// cleans up or deletes the outer one would meet the inner one. Stores on servers of other addresses, and
// those in memory without a name, are taken for distinct.
func distinct(log, backup store.Store, what, which, advice string) error {
	a, b := log.Traits(), backup.Traits()
	inside := func(place, other string) bool {
		return strings.HasPrefix(strings.TrimSuffix(place, "/")+"/", strings.TrimSuffix(other, "/")+"/")
	}
	if strings.TrimSuffix(a.Endpoint, "/") != strings.TrimSuffix(b.Endpoint, "/") || a.Name == "mem://" || b.Name == "mem://" || !inside(a.Name, b.Name) && !inside(b.Name, a.Name) {
		return nil
	}
	return fmt.Errorf("%s in %s and %s in %s are the same place, or one lies within the other; nothing was copied; %s", what, a.Name, which, b.Name, advice)
}

// apart refuses to have a backup and a store for files within one another.
func apart(second, backup store.Store) error {
	return distinct(second, backup, "the store for files", "the backup", "who cleans up the table, such as an engine that vacuums it, would delete the backup; give each a place of its own")
}

// as is the format of a log as that of a backup, or of one as that of a log. A backup has all files in its own store.
func as(f manifest.Format, backup bool) manifest.Format {
	f.Files, f.Backup, f.Restoring = nil, backup, nil
	return f
}

// ignore returns err unless it is what.
func ignore(err, what error) error {
	if errors.Is(err, what) {
		return nil
	}
	return err
}
