package append

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/feed"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/probe"
	"github.com/fencepost/fencepost/writer"
)

// drainTime is how long what is in flight may take at the end.
const drainTime = 15 * time.Second

// granted is an epoch that append got from elsewhere, such as from exec. Append does not elect then.
type granted struct {
	epoch     fence.Epoch // 0: append elects
	partition int         // of the group at the URL; -1: the log at the URL
	probed    *probe.Report
}

func grantedFlags(fl *pflag.FlagSet) *granted {
	g := &granted{partition: -1}
	kit.EpochVar(fl, &g.epoch, "append in this epoch, without an election: see above")
	fl.Var(&kit.Checked{Kind: "int", Parse: func(s string) error {
		p, err := strconv.Atoi(s)
		if err != nil || p < 0 {
			return errors.New("write the number of a partition, from 0 on")
		}
		g.partition = p
		return nil
	}}, "partition", "with --epoch: append to the log of this partition of the group at URL")
	return g
}

// underExec reports whether this append is a part of the command of exec, which tells all parts to end at once. Then the input
// ends, and what is still in it is read.
func (g *granted) underExec() bool {
	return g.epoch > 0 && os.Getenv("FENCEPOST_EPOCH") != "" && os.Getenv("FENCEPOST_LOCK") == ""
}

// check refuses an append that would wait for ever.
func (g *granted) check(url string) error {
	if g.epoch == 0 && kit.Leads(url) && os.Getenv("FENCEPOST_PARTITION") == "" {
		return kit.Usage("this runs under fencepost exec, which leads at the same URL until its command ends, so append would wait for ever; write append --epoch \"$FENCEPOST_EPOCH\"")
	}
	return nil
}

// log returns the store of the log that is meant.
func (g *granted) log(ctx context.Context, st store.Store) (store.Store, error) {
	if g.partition < 0 {
		return st, nil
	}
	n, err := group.Partitions(ctx, st)
	if err != nil {
		return nil, err
	}
	if g.partition >= n {
		return nil, kit.Usage("--partition %d: the group has %s, with the numbers 0 to %d", g.partition, kit.Plural(n, "partition"), n-1)
	}
	// Only the group probes the store, not each of its logs.
	var f struct {
		Probe *probe.Report `json:"probe"`
	}
	body, _, err := store.Read(ctx, st, group.FormatKey, &store.ReadOptions{Limit: 1 << 20})
	if err == nil {
		err = document.Decode(group.FormatKey, body, &f)
	}
	if err != nil {
		return nil, err
	}
	g.probed = f.Probe
	return group.PartitionStore(st, g.partition)
}

// init says how the log of a partition is made if this is its first append.
func (g *granted) init(o *manifest.InitOptions) {
	if g.partition < 0 {
		return
	}
	o.Probed = g.probed
	open := o.Probe.Open
	o.Probe.Open = func(ctx context.Context) (store.Store, error) {
		st, err := open(ctx)
		if err != nil {
			return nil, err
		}
		return group.PartitionStore(st, g.partition)
	}
}

// inEpoch feeds in the epoch that this append was given.
func (p *appending) inEpoch(ctx context.Context, st store.Store, f *feed.Feed, wo *writer.Options) error {
	p.epoch = p.granted.epoch
	wo.Logger = p.Log.Named("writer")
	w, err := writer.Open(ctx, st, fence.NewToken(p.epoch), wo)
	if err != nil {
		return p.refused(err)
	}
	p.Gauges.Note(true, p.epoch)
	p.recovered()
	p.Console.Note("appending in epoch %d", p.epoch)
	err = f.Work(ctx, w)
	// After a signal too, what is in flight has an outcome soon.
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	closed := w.Close(drain)
	p.Gauges.Note(false, p.epoch)
	if err == nil {
		err = closed
	}
	return p.refused(err)
}

// refused gives an error the exit status 77 if a later epoch has refused this one.
func (p *appending) refused(err error) error {
	if unknown := (*feed.UnknownError)(nil); !errors.Is(err, fence.ErrFenced) || errors.As(err, &unknown) {
		return err
	}
	if f, ok := errors.AsType[*fence.FencedError](err); ok && f.By == f.Epoch {
		err = fmt.Errorf("epoch %d has opened this log already, and an epoch can do so only once; "+
			"let one append run for as long as the command does, and write to its input: %w", p.epoch, fence.ErrFenced)
	}
	return kit.Kind(kit.ErrRefused, err)
}
