package survey

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/probe"
	"github.com/fencepost/fencepost/verify"
)

// KindBackup is the Log.Kind of a backup.
const KindBackup = "backup"

// Log is the state of a log. It marshals to JSON: that of status and lag, and a part of what serve shows.
type Log struct {
	Kind    string       `json:"kind"` // "log", or "backup"
	Store   string       `json:"store"`
	ID      fence.ID     `json:"log"`
	Created time.Time    `json:"created"`
	Grace   string       `json:"grace"`
	Limits  fence.Limits `json:"limits"`

	Leader    Term `json:"leader"`
	Compactor Term `json:"compactor"`

	inspect.Look
	// CursorText is the producer's cursor as text, if it is text.
	CursorText string `json:"cursor_text,omitempty"`

	// Unfolded is what waits for a compactor, if that was asked for.
	Unfolded *Unfolded `json:"unfolded,omitempty"`
	// Objects counts all objects, by their kinds, if that was asked for.
	Objects map[inspect.Kind]verify.Count `json:"objects,omitempty"`
	// Strange is how many of the unknown objects are not of a group of workers at the same place.
	Strange int `json:"-"`
	// BeforeFloor counts the objects below data/ before the floor: seals, which stay, and
	// objects that wait to be pruned.
	BeforeFloor *verify.Count `json:"data_before_floor,omitempty"`
	// Overdue is how many of those are older than objects become that wait to be pruned, or are of unknown age.
	Overdue int `json:"-"`
	// FilesStore is the name of the second store, if the log keeps the files of its table there.
	// FilesBeside counts the objects of this log in it, if that was asked for.
	FilesStore  string        `json:"files_store,omitempty"`
	FilesBeside *verify.Count `json:"files_beside,omitempty"`

	Probe *probe.Report `json:"probe,omitempty"`
}

// Of is what the format says of a log.
func Of(st store.Store, f manifest.Format) Log {
	l := Log{Kind: "log", Store: st.Traits().Name, ID: f.Log, Created: f.Created, Grace: f.Grace.String(), Limits: f.Limits, Probe: f.Probe}
	if f.Backup {
		l.Kind = KindBackup
	}
	if f.Files != nil {
		l.FilesStore = f.Files.Store
	}
	return l
}

// Options say what a survey includes. Nil works like the zero value.
type Options struct {
	// Unfolded measures what is not folded, which takes a listing of it.
	Unfolded bool
	// Objects counts all objects, which takes a listing of everything.
	Objects bool
	// Files is the second store, if the log has one and Objects should count it too.
	Files store.Store
	// Progress is called with the number of objects listed so far; it may be nil.
	Progress func(int)
	// Before is the look before, if there was one: Take reads only what came after.
	Before *inspect.Look
	// BadLock is called if the newest lock is corrupt, or a newer version of this project
	// has written it. Then Take goes on, and says nothing of that leadership. If it is nil, Take fails.
	BadLock func(of inspect.Kind, err error)
}

// Take surveys the log in st. It writes nothing. Without Unfolded and Objects it lists only locks
// and manifests, and reads the few objects of the chain after the last checkpoint.
func Take(ctx context.Context, st store.Store, opts *Options) (*Log, error) {
	if opts == nil {
		opts = &Options{}
	}
	log, err := inspect.Open(ctx, st, nil)
	if err != nil {
		return nil, err
	}
	f := log.Format()
	l := Of(st, f)
	if l.Leader, err = opts.leadership(ctx, st, inspect.Lock); err != nil {
		return nil, err
	}
	if l.Compactor, err = opts.leadership(ctx, st, inspect.CompactorLock); err != nil {
		return nil, err
	}
	look, err := log.Look(ctx, opts.Before)
	if err != nil {
		return nil, err
	}
	l.Look, l.CursorText = *look, Text(look.Cursor)
	if opts.Unfolded {
		if err := l.unfolded(ctx, st, log); err != nil {
			return nil, err
		}
	}
	if !opts.Objects {
		return &l, nil
	}
	if err := l.count(ctx, st, f.Grace, opts.Progress); err != nil || opts.Files == nil {
		return &l, err
	}
	return &l, l.beside(ctx, opts.Files, &f, opts.Progress)
}

// beside counts the objects of the log in its second store.
func (l *Log) beside(ctx context.Context, files store.Store, f *manifest.Format, progress func(int)) error {
	begin := func() { l.FilesBeside = &verify.Count{} }
	for info, err := range Listing(ctx, files, f.FileName(inspect.File.Prefix()), nil, begin) {
		if err != nil {
			return fmt.Errorf("listing the second store: %w", err)
		}
		l.FilesBeside.Objects++
		l.FilesBeside.Bytes += info.Size
		if progress != nil {
			progress(l.FilesBeside.Objects)
		}
	}
	return nil
}

// overdue is added to two grace periods: a compactor that keeps up deletes every folded object at a lower age.
const overdue = time.Hour

// count counts all objects.
func (l *Log) count(ctx context.Context, st store.Store, grace time.Duration, progress func(int)) error {
	n := 0
	begin := func() {
		n, l.Strange, l.Overdue = 0, 0, 0
		l.Objects, l.BeforeFloor = map[inspect.Kind]verify.Count{}, &verify.Count{}
	}
	for info, err := range Listing(ctx, st, "", nil, begin) {
		if err != nil {
			return err
		}
		if n++; progress != nil {
			progress(n)
		}
		name := inspect.Parse(info.Key)
		if name.Kind == inspect.Unknown && !group.OfGroup(info.Key) {
			l.Strange++
		}
		c := l.Objects[name.Kind]
		l.Objects[name.Kind] = verify.Count{Objects: c.Objects + 1, Bytes: c.Bytes + info.Size}
		if name.Kind == inspect.Data && name.Slot.Before(l.Floor) {
			l.BeforeFloor.Objects++
			l.BeforeFloor.Bytes += info.Size
			if age, known := info.Age(); !known || age > 2*grace+overdue {
				l.Overdue++
			}
		}
	}
	return nil
}

func (o *Options) leadership(ctx context.Context, st store.Store, of inspect.Kind) (Term, error) {
	t, err := Leadership(ctx, st, of)
	if o.BadLock != nil && (errors.Is(err, fence.ErrCorrupt) || errors.Is(err, fence.ErrFormat)) {
		o.BadLock(of, err)
		return t, nil
	}
	return t, err
}

// Text returns a cursor as text, "" if it is none.
func Text(cursor []byte) string {
	s := string(cursor)
	if strings.ContainsFunc(s, func(r rune) bool { return r == '\uFFFD' || r < 0x20 }) {
		return ""
	}
	return s
}
