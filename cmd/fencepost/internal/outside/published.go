package outside

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
)

// published is what a follower knows of the Delta table beside a log.
type published struct {
	began  bool   // _last_checkpoint was looked for
	commit string // the key of the newest commit that was seen
	state  *Published
}

// commitTail is how much is read of a commit, from its end: what is said of the log comes last in it.
const commitTail = 64 << 10

// readPublished looks for a later version of the Delta table that is published from the log. That takes
// a listing of the commits since the last look, and a request if there is one.
func (f *follower) readPublished(ctx context.Context) error {
	if f.log.Format().Files != nil {
		return nil // the table is in the other store
	}
	p := &f.published
	if !p.began {
		// A table with many versions has checkpoints. Listing from there on is one page.
		var last struct {
			Version int64 `json:"version"`
		}
		body, _, err := store.Read(ctx, f.st, layout.DeltaHintKey, &store.ReadOptions{Limit: 64 << 10, Settle: f.settle()})
		switch {
		case err != nil && !errors.Is(err, store.ErrNotFound):
			return err
		case err == nil && json.Unmarshal(body, &last) == nil && last.Version > 0:
			p.commit = layout.DeltaCommitKey(last.Version - 1)
		}
		p.began = true
	}
	var newest store.Info
	for info, err := range store.ListAll(ctx, f.st, layout.DeltaPrefix, &store.ListOptions{StartAfter: p.commit}, f.settle()) {
		if err != nil {
			return err
		}
		if _, ok := layout.ParseDeltaCommitKey(info.Key); ok && info.Key > p.commit && info.Key > newest.Key {
			newest = info
		}
	}
	if newest.Key == "" {
		return nil
	}
	from := max(newest.Size-commitTail, 0)
	tail, _, err := store.Read(ctx, f.st, newest.Key, &store.ReadOptions{Offset: from, Length: commitTail, Settle: f.settle()})
	if errors.Is(err, store.ErrNotFound) {
		return nil // deleted since; a later look finds a later one
	}
	if err != nil {
		return err
	}
	version, _ := layout.ParseDeltaCommitKey(newest.Key)
	if said := parseCommit(tail, f.log.Format().Log.String()); said != nil {
		said.Version, p.state = version, said
	} else if p.state != nil {
		next := *p.state // a version that says nothing of this log
		next.Version, p.state = version, &next
	}
	p.commit = newest.Key
	return nil
}

// parseCommit returns what a commit of a Delta table says of a log, or nil if that is nothing. It
// skips lines that it cannot read: the first may be cut off, and others may be of later versions.
func parseCommit(body []byte, log string) *Published {
	var p *Published
	gone := false
	for line := range bytes.Lines(body) {
		var a struct {
			Txn *struct {
				App     string `json:"appId"`
				Version uint64 `json:"version"`
				Updated int64  `json:"lastUpdated"`
			} `json:"txn"`
			Domain *struct {
				Domain string `json:"domain"`
				Config string `json:"configuration"`
			} `json:"domainMetadata"`
		}
		if json.Unmarshal(line, &a) != nil {
			continue
		}
		if t := a.Txn; t != nil && t.App == log {
			p = &Published{Edits: t.Version, At: time.UnixMilli(t.Updated).UTC()}
		}
		if d := a.Domain; d != nil && d.Domain == "fencepost."+log {
			var hold struct {
				Gone bool `json:"unpublished"`
			}
			gone = json.Unmarshal([]byte(d.Config), &hold) == nil && hold.Gone
		}
	}
	if p != nil {
		p.Gone = gone
	} else if gone {
		p = &Published{Gone: true}
	}
	return p
}
