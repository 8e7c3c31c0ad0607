// Package commit is the verb commit.
package commit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/ext/agent/session"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/writer"
)

// CommittedDoc is what commit --json prints.
type CommittedDoc struct {
	Committed bool        `json:"committed"`
	Files     int         `json:"files"`
	Epoch     fence.Epoch `json:"epoch"`
	End       uint64      `json:"end"`
	Cursor    string      `json:"cursor,omitempty"`
}

// Command returns the verb.
func Command(k *kit.Kit) *cobra.Command {
	var cursor string
	var wait bool
	var values []string
	c := &cobra.Command{
		Use:   "commit [--cursor C] [--wait] [--value COLUMN=VALUE] URL FILE...",
		Short: "make Parquet files part of the log's table",
		Long: `Commit uploads Parquet files, whatever program has written them, and adds them to the
log's table: all of them or none, in order with the records. For that it leads. If an
agent of this machine and user leads (agent --lead, at a unix socket), that does it. If
another process leads, commit ends with status 75, or waits with --wait. A commit that was
paused, and wakes up when another process leads, is refused with status 77.

With --cursor the commit is done once: the text is stored with it, and if the log has it
already, commit does nothing. A cursor that is a number must not be lower than the one
that the log has. Without it, a commit whose outcome is unknown (status 3) may add its
files a second time when it is tried again.

--value is the value of a column by which the table is partitioned, for all files.

It needs the rights of a writer.`,
		Example: "fencepost commit --cursor 2026-11-29 s3://bucket/orders day.parquet",
		Args:    kit.WantArgs(2, 1000),
	}
	fl := c.Flags()
	fl.StringVar(&cursor, "cursor", "", "the program's position after these files")
	fl.BoolVar(&wait, "wait", false, "wait to lead")
	fl.StringArrayVar(&values, "value", nil, "`COLUMN=VALUE` of the files, for a table that is partitioned")
	k.FilesFlag(c)
	election := k.Election(c)
	k.JSONFlag(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		p := &committing{k: k, cursor: cursor, commit: &session.Commit{Files: args[1:]}}
		for _, v := range values {
			name, value, ok := strings.Cut(v, "=")
			if !ok || name == "" {
				return kit.Usage("--value is %q; write COLUMN=VALUE", v)
			}
			if p.commit.Values == nil {
				p.commit.Values = map[string]string{}
			}
			p.commit.Values[name] = value
		}
		for _, name := range args[1:] {
			info, err := os.Stat(name)
			if err != nil {
				return err // before anybody leads
			}
			if err := kit.Regular(info); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		elect := election()
		if err := elect.Validate(); err != nil {
			return kit.Usage("%w", err)
		}
		return p.run(cmd.Context(), args[0], &elect, wait)
	}
	return c
}

// committing is a client of a session that commits once.
type committing struct {
	k      *kit.Kit
	cursor string
	commit *session.Commit

	next chan session.Message // the commit, and then no more
	stop chan struct{}
	once sync.Once
	doc  CommittedDoc
}

func (p *committing) run(ctx context.Context, url string, elect *leader.Options, wait bool) error {
	if kit.Leads(url) {
		return kit.Usage("this runs under fencepost exec, which leads at the same URL until its command ends; write the files to one append --protocol json --epoch \"$FENCEPOST_EPOCH\"")
	}
	st, err := p.k.Store(ctx, url, true)
	if err != nil {
		return err
	}
	files, err := p.k.Files(ctx, true)
	if err != nil {
		return err
	}
	switch f, err := manifest.ReadFormat(ctx, st, nil); {
	case err == nil:
		if err := kit.Fits(ctx, st, &f, files); err != nil {
			return err
		}
	default:
		if err := kit.Orphaned(ctx, st, err); !errors.Is(err, manifest.ErrNotInitialized) {
			return err
		}
	}
	if files == nil { // an agent knows no second store
		if err := p.through(ctx, st, url); !errors.Is(err, errOther) {
			if err != nil {
				return err
			}
			return p.show()
		}
	}
	p.next, p.stop = make(chan session.Message, 1), make(chan struct{})
	o := &session.Options{NoWait: !wait, Upload: p.k.Uploader(st, files)}
	err = session.New(p, o).Lead(ctx, st, &fencepost.Options{
		Leader: elect, Logger: p.k.Log,
		Writer: &writer.Options{Files: files, Init: &manifest.InitOptions{Probe: p.k.Probing(url)}},
	})
	if end, ok := errors.AsType[*session.EndError](err); ok {
		switch {
		case end.Unknown > 0:
			return kit.Kind(kit.ErrOutcome, end.Err)
		case end.Code == session.CodeFenced:
			return kit.Kind(kit.ErrRefused, end.Err)
		case end.Code == session.CodeBusy:
			p.k.Console.Note("fencepost: %s; or wait with --wait", kit.Line(end.Err))
			return kit.CodeError(kit.ExitBusy)
		}
		return end.Err
	}
	if err != nil {
		return err
	}
	return p.show()
}

// show prints what was done.
func (p *committing) show() error {
	text := "committed " + kit.Plural(p.doc.Files, "file") + "\n"
	if !p.doc.Committed {
		text = "nothing to commit: the log has this cursor already\n"
	}
	return p.k.Show(p.doc, []byte(text))
}

// Receive implements [session.Client].
func (p *committing) Receive() (session.Message, error) {
	select {
	case m, ok := <-p.next:
		if ok {
			return m, nil
		}
	case <-p.stop:
	}
	return session.Message{}, io.EOF
}

// Stop implements [session.Client].
func (p *committing) Stop() { p.once.Do(func() { close(p.stop) }) }

// Send implements [session.Client].
func (p *committing) Send(e session.Event) error {
	switch e.Kind {
	case session.Waiting:
		p.k.Console.Note("waiting for %s, which leads in epoch %d; if it has crashed, until %s", e.Holder, e.Epoch, kit.When(e.Until))
	case session.Trouble:
		p.k.Console.Note("%s", e.Why)
	case session.Leading:
		p.doc = CommittedDoc{Epoch: e.Epoch, End: e.End, Cursor: cmp.Or(p.cursor, string(e.Cursor))}
		if p.cursor == "" || p.cursor != string(e.Cursor) {
			m := session.Message{Commit: p.commit}
			if p.cursor != "" {
				m.Cursor = []byte(p.cursor)
			}
			p.next <- m
		}
		close(p.next)
	case session.Committed:
		p.doc.Committed, p.doc.Files = true, len(p.commit.Files)
	case session.Flushed, session.Draining, session.Ended, session.Lost:
	}
	return nil
}
