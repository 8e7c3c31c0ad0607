package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/files"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
)

// Options of a [Log]. The zero value works.
type Options struct {
	// Files is the store for the files of the table, if that is not the log's own.
	Files store.Store
	// Settle tunes retries.
	Settle *store.SettleOptions
	// Clock is the machine's by default.
	Clock clock.Clock
}

// Log reads and writes the manifests of one log. It is safe for concurrent use.
type Log struct {
	st     store.Store
	format manifest.Format
	opts   Options

	pages pageCache

	mu     sync.Mutex
	latest loaded // the newest that this process has seen
}

// loaded is a manifest, and what the store said of its object.
type loaded struct {
	m    *Manifest
	info store.Info
}

// Open reads the format of the log in st. A log with a store for files can be opened without
// it, by those who use no files. Errors: those of [manifest.ReadFormat]; [manifest.ErrFiles].
func Open(ctx context.Context, st store.Store, opts *Options) (*Log, error) {
	l := With(st, manifest.Format{}, opts)
	var err error
	if l.format, err = manifest.ReadFormat(ctx, st, l.opts.Settle); err != nil {
		return nil, err
	}
	if !store.IsNil(l.opts.Files) {
		err = FitFiles(&l.format, st, l.opts.Files)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Writable returns [manifest.ErrBackup] if the log is a backup.
func (l *Log) Writable() error {
	if !l.format.Backup {
		return nil
	}
	return fmt.Errorf("%w: %s", manifest.ErrBackup, l.st.Traits().Name)
}

// With returns the log in st whose format is already known.
func With(st store.Store, f manifest.Format, opts *Options) *Log {
	l := &Log{st: st, format: f, opts: *cmp.Or(opts, &Options{})}
	l.opts.Clock = clock.Or(l.opts.Clock)
	return l
}

// Format returns what format.json says.
func (l *Log) Format() manifest.Format { return l.format }

// Store returns the store that the log is in.
func (l *Log) Store() store.Store { return l.st }

// FileStore returns the store that has the files of the table, under their keys. The error is
// [manifest.ErrFiles] if that is a second store, which was not given.
func (l *Log) FileStore() (store.Store, error) {
	if err := FitFiles(&l.format, l.st, l.opts.Files); err != nil {
		return nil, err
	}
	if l.format.Files == nil {
		return l.st, nil
	}
	return files.View(l.opts.Files, l.format.Log), nil
}

// CheckFiles is FileStore for those who create or delete files: it also reads the mark of a
// second store. Home says that the log must be where the mark was written.
func (l *Log) CheckFiles(ctx context.Context, home bool) (store.Store, error) {
	st, err := l.FileStore()
	if err != nil || l.format.Files == nil {
		return st, err
	}
	at := ""
	if home {
		at = l.st.Traits().Name
	}
	return st, files.Check(ctx, l.opts.Files, l.format.Log, at, l.opts.Settle)
}

// newestTries bounds how often Newest begins again because the highest manifest was
// pruned between LIST and GET. Each time somebody has published a newer one.
const newestTries = 64

// lostTries is how often a listing may show less than is known to have been stored.
const lostTries = 4

// Newest returns the newest manifest, or the state before the first one, whose Version
// is 0. It never returns an older one than before. It costs one LIST, and one GET unless
// nothing has changed since the last call. Errors: [fence.ErrCorrupt], also if manifests
// have been lost; [fence.ErrFormat].
func (l *Log) Newest(ctx context.Context) (*Manifest, error) { return l.newest(ctx, 0, l.highest) }

// Floor reads the newest manifest and returns its floor.
func (l *Log) Floor(ctx context.Context) (fence.Position, error) {
	m, err := l.Newest(ctx)
	if err != nil {
		return fence.Position{}, err
	}
	return m.Floor.Position, nil
}

// lister returns the highest manifest of a complete listing, see highest.
type lister func(context.Context) (top store.Info, high uint64, err error)

// newest is Newest for a caller that knows that version atLeast was created. The first
// listing is made by list.
func (l *Log) newest(ctx context.Context, atLeast uint64, list lister) (*Manifest, error) {
	for n := range newestTries {
		// Read before the listing begins: meanwhile others may see newer ones.
		latest := l.seen()
		if latest.m != nil {
			atLeast = max(atLeast, latest.m.Version)
		}
		top, high, err := list(ctx)
		list = l.highest
		switch {
		case err != nil:
			return nil, err
		case high < atLeast:
			// guard:newest-lost. A process takes no manifest for the newest that is older than one that
			// it has seen: it lists again, and then reports damage.
			if n < lostTries {
				if err := l.pause(ctx, n); err != nil {
					return nil, err
				}
				continue
			}
			return nil, fmt.Errorf("%w: manifest %d was there, and the newest that %s lists is %d; are there rules that delete objects, or a cache?",
				fence.ErrCorrupt, atLeast, l.st.Traits().Name, high)
		case high == 0 && l.format.Backup:
			return nil, fmt.Errorf("%w: the backup in %s is not complete, since its manifest comes last: run `fencepost backup` again", manifest.ErrNotInitialized, l.st.Traits().Name)
		case high == 0:
			return l.initial(), nil
		}
		if latest.m != nil && latest.info.Key == top.Key && latest.info.Version == top.Version {
			return latest.m, nil
		}
		// guard:manifest-match. The GET of a manifest must return the object version that the listing
		// showed.
		//
		//mutant:replace info.Version == top.Version => true
		body, info, err := store.Read(ctx, l.st, top.Key, &store.ReadOptions{Limit: l.format.Limits.Manifest, Settle: l.opts.Settle})
		switch {
		case errors.Is(err, store.ErrNotFound):
		case errors.Is(err, store.ErrTooLarge):
			return nil, document.Corrupt(top.Key, "%v", err)
		case err != nil:
			return nil, err
		case info.Version == top.Version:
			m, err := decode(top.Key, body, l.format)
			if err != nil {
				return nil, err
			}
			l.remember(loaded{m, info})
			return m, nil
		}
		// It was pruned, so there is a newer one.
		if err := l.pause(ctx, n); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("manifest: the newest manifest under %s changed %d times while it was read; is a pruner running wild?", l.st.Traits().Name, newestTries)
}

func (l *Log) pause(ctx context.Context, n int) error {
	return clock.Sleep(ctx, l.opts.Clock, time.Duration(min(n, 10))*time.Millisecond)
}

func (l *Log) initial() *Manifest {
	return &Manifest{Format: document.Format, Log: l.format.Log, Roles: map[layout.Role]RoleState{}, Floor: frame.Start()}
}

func (l *Log) seen() loaded {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.latest
}

func (l *Log) remember(v loaded) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.latest.m == nil || l.latest.m.Version <= v.m.Version {
		l.latest = v
	}
}

// highest lists the manifests, from the newest one on that this process has seen, and
// returns the one with the highest number, which is 0 if there is none. Numbers only rise, so
// those before it cannot be the newest.
func (l *Log) highest(ctx context.Context) (top store.Info, high uint64, err error) {
	var from *store.ListOptions
	if seen := l.seen(); seen.m != nil {
		from = &store.ListOptions{StartAfter: layout.ManifestKey(seen.m.Version - 1)}
	}
	for info, err := range store.ListAll(ctx, l.st, layout.ManifestPrefix, from, l.opts.Settle) {
		if err != nil {
			return store.Info{}, 0, err
		}
		if v, ok := layout.ParseManifestKey(info.Key); ok && v >= high {
			top, high = info, v
		}
	}
	return top, high, nil
}

// Kept is a manifest that was not pruned.
type Kept struct {
	Version uint64
	store.Info
}

// Versions returns all manifests in the store, by number. Some may be junk: a number
// below the newest whose manifest was pruned, and that a zombie has written again.
func (l *Log) Versions(ctx context.Context) (map[uint64]Kept, error) {
	kept := map[uint64]Kept{}
	for info, err := range store.ListAll(ctx, l.st, layout.ManifestPrefix, nil, l.opts.Settle) {
		if err != nil {
			return nil, err
		}
		if v, ok := layout.ParseManifestKey(info.Key); ok {
			kept[v] = Kept{v, info}
		}
	}
	return kept, nil
}

// At reads one version. It may return a zombie's junk for a version that was pruned. So
// only versions above the PruneMark of the newest manifest mean anything. Errors:
// [ErrPruned], [fence.ErrCorrupt], [fence.ErrFormat].
func (l *Log) At(ctx context.Context, version uint64) (*Manifest, store.Info, error) {
	key := layout.ManifestKey(version)
	body, info, err := store.Read(ctx, l.st, key, &store.ReadOptions{Limit: l.format.Limits.Manifest, Settle: l.opts.Settle})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, info, fmt.Errorf("%w: %s", ErrPruned, key)
	case errors.Is(err, store.ErrTooLarge):
		return nil, info, document.Corrupt(key, "%v", err)
	case err != nil:
		return nil, info, err
	}
	m, err := decode(key, body, l.format)
	return m, info, err
}

// Begin initializes the log in st, if need be, and returns it with its newest manifest.
// It is manifest.Init and [Log.Newest] in one: it reads format.json while it lists the
// manifests, so that two requests take the time of one.
//
// If the log is being created now, the listing may predate it. That is harmless: the call
// might as well have come earlier.
func Begin(ctx context.Context, st store.Store, init *manifest.InitOptions, opts *Options) (*Log, *Manifest, error) {
	l := With(st, manifest.Format{}, opts)
	if init != nil {
		l.opts.Files = init.Files
	}
	early, cancel := context.WithCancel(ctx)
	var top store.Info
	var high uint64
	var failed error
	listed := make(chan struct{})
	go func() {
		defer close(listed)
		top, high, failed = l.highest(early)
	}()
	f, err := manifest.Init(ctx, st, init)
	if err != nil {
		cancel() // nobody needs the listing
	}
	<-listed
	cancel()
	if err != nil {
		return nil, nil, err
	}
	if init != nil && reflect.DeepEqual(f.Probe, init.Probed) {
		f.Probe = init.Probed // the logs of a group share one report, and a process may have thousands of them
	}
	l.format = f
	m, err := l.newest(ctx, 0, func(context.Context) (store.Info, uint64, error) { return top, high, failed })
	if err != nil {
		return nil, nil, err
	}
	return l, m, nil
}
