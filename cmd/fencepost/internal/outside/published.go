package outside

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/store"
)

// published is what a follower knows of the Delta table beside a log.
type published struct {
	began  bool   // _last_checkpoint was looked for
	commit string // the key of the newest commit that was seen
	listed bool   // a listing had commit
	state  *Published
}

// tablePrefix begins the keys of the Delta table that ext/delta publishes beside a log. Its names are those of Delta Lake.
var tablePrefix = inspect.File.Prefix() + "_delta_log/"

func commitKey(version int64) string { return fmt.Sprintf("%s%020d.json", tablePrefix, version) }

// parseCommitKey reads what commitKey writes.
func parseCommitKey(key string) (version int64, ok bool) {
	number, _ := strings.CutSuffix(strings.TrimPrefix(key, tablePrefix), ".json")
	n, err := strconv.ParseUint(number, 10, 63)
	return int64(n), err == nil && commitKey(int64(n)) == key
}

// commitTail is how much is read of a commit, from its end: what is said of the log comes last in it.
const commitTail = 64 << 10

// readPublished looks for a later version of the Delta table that is published from the log. That takes
// a listing of the commits since the last look, and a request if there is one. If that says nothing of the
// log, it takes a request for each earlier one, up to some.
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
		body, _, err := store.Read(ctx, f.st, tablePrefix+"_last_checkpoint", &store.ReadOptions{Limit: 64 << 10, Settle: f.settle()})
		switch {
		case err != nil && !errors.Is(err, store.ErrNotFound):
			return err
		case err == nil && json.Unmarshal(body, &last) == nil && last.Version > 0:
			p.commit = commitKey(last.Version - 1)
		}
		p.began = true
	}
	start := p.commit
	if p.listed { // begin one earlier: the listing has p.commit, if the table is still the same
		start = ""
		if version, _ := parseCommitKey(p.commit); version > 0 {
			start = commitKey(version - 1)
		}
	}
	var newer []store.Info
	same := false
	for info, err := range store.ListAll(ctx, f.st, tablePrefix, &store.ListOptions{StartAfter: start}, f.settle()) {
		if err != nil {
			return err
		}
		same = same || info.Key == p.commit
		if _, ok := parseCommitKey(info.Key); ok && info.Key > p.commit {
			newer = append(newer, info)
		}
	}
	if p.listed && !same {
		f.published = published{} // the table was deleted
		return nil
	}
	if len(newer) == 0 {
		return nil
	}
	slices.SortFunc(newer, func(a, b store.Info) int { return strings.Compare(b.Key, a.Key) })
	said, err := f.said(ctx, newer[:min(len(newer), mostCommits)])
	if err != nil {
		return err
	}
	if said == nil && p.state != nil {
		old := *p.state
		said = &old
	}
	if said != nil {
		said.Version, _ = parseCommitKey(newer[0].Key)
	}
	p.state, p.commit, p.listed = said, newer[0].Key, true
	return nil
}

// mostCommits is how many commits a look reads at most to find one that says something of the log: others, such
// as those that an engine made, say nothing.
const mostCommits = 10

// said returns what the first of some commits that says something of the log says, or nil.
func (f *follower) said(ctx context.Context, commits []store.Info) (*Published, error) {
	for _, c := range commits {
		tail, _, err := store.Read(ctx, f.st, c.Key, &store.ReadOptions{Offset: max(c.Size-commitTail, 0), Length: commitTail, Settle: f.settle()})
		if errors.Is(err, store.ErrNotFound) {
			continue // deleted since
		}
		if err != nil {
			return nil, err
		}
		if said := parseCommit(tail, f.log.Format().Log.String()); said != nil {
			return said, nil
		}
	}
	return nil, nil
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
			p = &Published{Edits: t.Version}
			if at := time.UnixMilli(t.Updated).UTC(); at.Year() >= 1 && at.Year() <= 9999 { // else JSON cannot say it
				p.At = at
			}
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
