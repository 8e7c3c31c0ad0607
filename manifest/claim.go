package manifest

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/files"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/probe"
)

// ClaimFiles marks second as the store for the files of a log that is copied to st with its identity, as a restore
// does. It returns what [Format].Files is to be there, and the object of the mark. If there is no mark, it probes
// second and creates one. It never replaces a mark: if the one that is there names another place than st, the
// error is [ErrFiles]. So of all copies of one log, one has the store.
//
// Without opts it creates none, and a store without a mark is ErrFiles. If st is nil, the mark may name any place.
func ClaimFiles(ctx context.Context, st, second store.Store, log fence.ID, opts *probe.Options) (*Files, store.Info, error) {
	if st != nil {
		if err := files.Apart(st, second); err != nil {
			return nil, store.Info{}, fmt.Errorf("%w: %w", ErrFiles, err)
		}
	}
	if err := roomyFiles(second); err != nil {
		return nil, store.Info{}, err
	}
	_, _, err := files.Read(ctx, second, log, nil)
	switch absent := errors.Is(err, store.ErrNotFound); {
	case absent && opts == nil:
		err = files.Check(ctx, second, log, "", nil)
	case absent:
		var report *probe.Report
		if report, err = files.Probe(ctx, second, opts, clock.Or(nil).Wall(), nil); err == nil {
			_, err = files.Create(ctx, second, log, st.Traits(), report, nil)
		}
	}
	if err != nil {
		return nil, store.Info{}, err
	}
	m, info, err := files.Read(ctx, second, log, nil)
	if err == nil && st != nil && !m.Of(st.Traits()) {
		home := cmp.Or(m.Where, m.Home)
		err = fmt.Errorf("%w: the store for files, %s, has those of the same log in %s, or a restore to there has begun. Give another store, or another prefix, with --files. Or restore to %s, if that restore was interrupted. If there is neither a log nor a restore that may still run, delete %s/%s in the store for files, and restore again",
			ErrFiles, second.Traits().Name, home, home, layout.SharedDir, layout.MarkKey(log))
	}
	return &Files{Store: second.Traits().Name, Probe: m.Probe}, info, err
}
