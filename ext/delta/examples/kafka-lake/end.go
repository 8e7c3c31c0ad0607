//go:build unix

package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
)

// below returns the URL of a folder of a store.
func below(where, folder string) (string, error) {
	u, err := url.Parse(where)
	if err != nil {
		return "", err
	}
	if u.Scheme == "" {
		return "", fmt.Errorf("%q has no scheme: give a URL such as file:///dir or s3://bucket/prefix", where)
	}
	u.Path = strings.TrimSuffix(u.Path, "/") + "/" + folder
	return u.String(), nil
}

// check compares the table with what was produced. Then it sweeps, and compares again.
func (s *story) check(ctx context.Context) error {
	if err := s.publish(ctx); err != nil {
		return err
	}
	if err := s.compare(ctx); err != nil {
		return err
	}
	// No other process runs any more, so no file can come or go.
	orphans, err := s.orphans(ctx)
	if err != nil {
		return err
	}
	for _, name := range []string{"bob dies", "cyd freezes"} {
		if f := s.report.moments[name].File; !slices.Contains(orphans, f) {
			return fmt.Errorf("broken promise: %s was uploaded and not committed (%s), and is not left over", f, name)
		}
	}
	s.say("%d of %d uploaded files are in no version, among them those of bob and cyd: their messages are in files of others", len(orphans), len(s.report.uploaded))
	if err := s.sweep(ctx); err != nil {
		return err
	}
	if err := s.publish(ctx); err != nil {
		return err
	}
	// Everything is read anew, also the files.
	s.found = newDeltaTable(s.table)
	return s.compare(ctx)
}

// compare reads the table, checks each of its versions, and compares the newest one with the ledger.
func (s *story) compare(ctx context.Context) error {
	t := s.found
	if err := t.read(ctx); err != nil {
		return err
	}
	if err := t.prefixes(); err != nil {
		return fmt.Errorf("broken promise: %w", err)
	}
	v := s.ledger.compare(t.newest)
	s.verdict = v
	if err := v.err(); err != nil {
		return err
	}
	s.say("the table has %d messages in %d files; %d were produced", v.Read, len(t.versions[len(t.versions)-1]), v.Produced)
	s.say("lost: %d, doubled: %d, never produced: %d, changed: %d, gaps: %d, in %d partitions with %d owners one after the other",
		v.Lost, v.Doubled, v.Strange, v.Changed, v.Gaps, s.partitions, s.report.openings())
	s.say("in each of %d versions each partition's messages are there from the first one on, each once, without a gap", len(t.versions))
	return nil
}

// orphans are the Parquet files that lie in the store and that no version names.
func (s *story) orphans(ctx context.Context) (left []string, err error) {
	for info, err := range store.ListAll(ctx, s.table, "", nil, nil) {
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(info.Key, ".parquet") && !strings.HasPrefix(info.Key, "_") && !s.found.names(info.Key) {
			left = append(left, info.Key)
		}
	}
	return left, nil
}

// sweep compacts the logs until the files that nobody committed are gone. The compactor deletes such a
// file when its epoch is over, and the grace period too.
func (s *story) sweep(ctx context.Context) error {
	before, err := s.orphans(ctx)
	if err != nil {
		return err
	}
	for pass := uint64(1); ; pass++ {
		for p := range s.partitions {
			if err := s.compact(ctx, p, pass); err != nil {
				return fmt.Errorf("partition %d: %w", p, err)
			}
		}
		left, err := s.orphans(ctx)
		if err != nil {
			return err
		}
		if len(left) == 0 {
			s.say("the compactor has deleted these %d files", len(before))
			return nil
		}
		select {
		case <-time.After(grace / 2):
		case <-ctx.Done():
			return fmt.Errorf("broken promise: the compactor leaves %q: %w", left, context.Cause(ctx))
		}
	}
}

// compact compacts the log of a partition. Nobody else does, so any rising number is a token.
func (s *story) compact(ctx context.Context, partition int, pass uint64) error {
	log, err := group.PartitionStore(s.logs, partition)
	if err != nil {
		return err
	}
	c, err := compactor.New(log, &compactor.Options{Token: fence.NewToken(fence.Epoch(pass)), Files: s.table})
	if err != nil {
		return err
	}
	_, err = c.Once(ctx)
	return err
}
