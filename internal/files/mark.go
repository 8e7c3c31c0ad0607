package files

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/probe"
)

// ErrStore: a log was not given the store that has its files.
var ErrStore = errors.New("manifest: wrong store for files")

// maxMark bounds a mark, in bytes.
const maxMark = 64 << 10

// Mark tells that a store has the files of a log.
type Mark struct {
	Format int      `json:"format"`
	Log    fence.ID `json:"log"`
	// Home is the name of the store that has the log itself.
	Home string `json:"home"`
	// Where is Home with its server ([store.Traits.Where]), as the program saw it that made the mark; empty
	// in marks of older versions. Only a restore compares it: other programs may reach the same server
	// under another address.
	Where string   `json:"where,omitempty"`
	Nonce fence.ID `json:"nonce"`
	// Probe is what was found out about the store for files, by this log or by one before it.
	Probe *probe.Report `json:"probe,omitempty"`
}

// Of reports whether the mark is that of a log in a store. It tells two stores of one name on two servers
// apart, if the mark has the server. A slash at the end of the server's address makes no other one.
func (m *Mark) Of(home store.Traits) bool {
	return m.Home == home.Name && (m.Where == "" || strings.TrimSuffix(m.Where, "/") == strings.TrimSuffix(home.Where(), "/"))
}

// key is where the mark of a log lies in the store of all logs.
func key(log fence.ID) string { return layout.SharedDir + "/" + layout.MarkKey(log) }

// Read reads the mark of a log. A store without one is [store.ErrNotFound].
func Read(ctx context.Context, st store.Store, log fence.ID, settle *store.SettleOptions) (Mark, store.Info, error) {
	return read(ctx, st, key(log), settle)
}

func read(ctx context.Context, st store.Store, key string, settle *store.SettleOptions) (m Mark, info store.Info, err error) {
	body, info, err := store.Read(ctx, st, key, &store.ReadOptions{Limit: maxMark, Settle: settle})
	switch {
	case errors.Is(err, store.ErrTooLarge):
		return Mark{}, info, document.Corrupt(key, "%v", err)
	case err != nil:
		return Mark{}, info, err
	}
	if err := document.Decode(key, body, &m); err != nil {
		return Mark{}, info, err
	}
	return m, info, nil
}

// Create marks st as the store that has the files of the log in home, unless it has a mark of this
// log already. It returns the mark that is there when it returns: the caller compares it with [Mark.Of].
func Create(ctx context.Context, st store.Store, log fence.ID, home store.Traits, report *probe.Report, settle *store.SettleOptions) (Mark, error) {
	m, body, err := mark(log, home, report)
	if err != nil {
		return Mark{}, err
	}
	// guard:files-mark-once. A program that makes or restores a log creates the mark only if there is
	// none.
	//
	//mutant:replace store.Create(ctx, st, key(log), body, &store.WriteOptions{Settle: settle}) => st.Put(ctx, key(log), body, nil)
	_, err = store.Create(ctx, st, key(log), body, &store.WriteOptions{Settle: settle})
	if errors.Is(err, store.ErrPrecondition) {
		m, _, err = Read(ctx, st, log, settle)
	}
	return m, err
}

// Seen is a mark as it was when a person decided that it is wrong. The zero value is one that was
// absent.
type Seen struct{ version store.Version }

// See reads the mark of a log that [Replace] is to replace. It may be absent or damaged.
func See(ctx context.Context, st store.Store, log fence.ID, settle *store.SettleOptions) (Seen, error) {
	_, info, err := Read(ctx, st, log, settle)
	if err != nil && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, fence.ErrCorrupt) {
		return Seen{}, err
	}
	return Seen{info.Version}, nil
}

// Replace marks st as the store that has the files of the log in home, whatever the mark says that
// was seen. If the mark has changed since, the error is [ErrStore], and nothing is written.
func Replace(ctx context.Context, st store.Store, log fence.ID, home store.Traits, report *probe.Report, seen Seen, settle *store.SettleOptions) error {
	_, body, err := mark(log, home, report)
	if err != nil {
		return err
	}
	o := &store.WriteOptions{Settle: settle}
	if seen.version == "" {
		_, err = store.Create(ctx, st, key(log), body, o)
	} else {
		// guard:files-mark-seen. `fencepost init --files-moved` replaces the mark that was there when
		// the command began, and no later one.
		//
		//mutant:replace store.Swap(ctx, st, key(log), body, seen.version, o) => st.Put(ctx, key(log), body, nil)
		_, err = store.Swap(ctx, st, key(log), body, seen.version, o)
	}
	if errors.Is(err, store.ErrPrecondition) {
		return fmt.Errorf("%w: %s in %s was changed by somebody else meanwhile, and was left as it is; see which log it names as home, and run the command again if that is wrong: %w", ErrStore, key(log), st.Traits().Name, err)
	}
	return err
}

// mark returns a new mark, also as a document.
func mark(log fence.ID, home store.Traits, report *probe.Report) (Mark, []byte, error) {
	m := Mark{Format: document.Format, Log: log, Home: home.Name, Where: home.Where(), Nonce: fence.ID(uuid.New()), Probe: report}
	body, err := document.Encode(key(log), m)
	return m, body, err
}

// Remove deletes the mark of a log that was not created after all.
func Remove(ctx context.Context, st store.Store, log fence.ID, settle *store.SettleOptions) error {
	return store.DeleteAll(ctx, st, []string{key(log)}, settle)
}

// Probed returns the report of a probe that a log has made before and that still counts
// ([probe.Report.Current]), or nil. So a store that thousands of logs share is probed once in a
// while.
func Probed(ctx context.Context, st store.Store, now time.Time, settle *store.SettleOptions) (*probe.Report, error) {
	for info, err := range store.ListAll(ctx, st, layout.SharedDir+"/", nil, settle) {
		if err != nil {
			return nil, err
		}
		if !strings.HasSuffix(info.Key, ".json") {
			continue
		}
		if m, _, err := read(ctx, st, info.Key, settle); err == nil && m.Probe.Current(now) && key(m.Log) == info.Key {
			return m.Probe, nil
		}
	}
	return nil, nil
}

// Probe probes st as the store for files, unless that was done lately. What it writes lies
// below [layout.SharedDir].
func Probe(ctx context.Context, st store.Store, opts *probe.Options, now time.Time, settle *store.SettleOptions) (*probe.Report, error) {
	if report, err := Probed(ctx, st, now, settle); report != nil || err != nil {
		return report, err
	}
	shared, err := store.Sub(st, layout.SharedDir)
	if err != nil {
		return nil, err
	}
	var o probe.Options
	if opts != nil {
		o = *opts
	}
	o.Open = nil // it opens the log's store
	report, err := probe.Run(ctx, shared, &o)
	if err != nil {
		return nil, fmt.Errorf("the store for files, %s: %w", st.Traits().Name, err)
	}
	return report, nil
}

// Check refuses a store that has not the files of the log. Home is the name of the store that
// has the log; empty means that it does not matter. Errors: [ErrStore], [fence.ErrCorrupt],
// [fence.ErrFormat], and the store's.
func Check(ctx context.Context, st store.Store, log fence.ID, home string, settle *store.SettleOptions) error {
	m, _, err := Read(ctx, st, log, settle)
	// guard:files-mark. A process uploads or deletes files of a log only in a store that has the mark
	// of this log.
	//
	//mutant:replace errors.Is(err, store.ErrNotFound) { => errors.Is(err, store.ErrNotFound) { return nil
	if errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("%w: %s has no %s, so it is not the one that has the files of log %s; give the store with which the log was created. If that object was deleted, or the files were moved here, run fencepost init --files-moved",
			ErrStore, st.Traits().Name, key(log), log)
	}
	if err != nil {
		return err
	}
	if m.Log != log {
		return document.Corrupt(key(log), "it is the mark of log %s", m.Log)
	}
	// guard:files-home. A compactor deletes no files if the mark in the store for files names another
	// store than that of its log.
	//
	//mutant:replace m.Home != home => false
	if home != "" && m.Home != home {
		return fmt.Errorf("%w: the files in %s belong to the log in %s, and this is %s. A copy of a log needs a copy of its files. If the log was moved, run fencepost init --files-moved",
			ErrStore, st.Traits().Name, m.Home, home)
	}
	return nil
}
