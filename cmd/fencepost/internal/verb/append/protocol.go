package append

import (
	"context"
	"errors"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/ext/agent/session"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

// protocolHelp is the help about --protocol.
const protocolHelp = `With --protocol json, standard input and output have a line of JSON for each message, for
programs in any language. {"text":"a record","cursor":"7"} appends a record, as do "value"
and "base64", which cat --json explains; {"records":[…]} appends several in one atom, and
{"files":["x.parquet"]} adds Parquet files to the table. Each {"first":7,"end":9} says that
the next "appends" messages are in the log for ever, as the records from 7 to before 9.
The program goes on at the "cursor" of {"event":"leading"}. After {"event":"lost"} this
append ends, and starts again with the next one. See docs/agent.md.`

// serve serves a client that speaks JSON on standard input and output.
func (p *appending) serve(ctx context.Context, st store.Store, wo *writer.Options) error {
	o := &session.Options{Promise: p.promise, NoWait: p.noWait, Upload: p.Uploader(st, wo.Files)}
	if err := o.Validate(); err != nil {
		return kit.Usage("--promise: %w", err)
	}
	s := session.New(session.NewLines(p.In, p.Out), o)
	if p.granted.epoch == 0 {
		p.leader = p.election()
		if err := p.leader.Validate(); err != nil {
			return kit.Usage("%w", err)
		}
		p.leader.Hooks = p.Gauges.Leader("log", p.leader.Hooks)
		return finished(s.Lead(ctx, st, &fencepost.Options{Leader: &p.leader, Writer: wo, Logger: p.Log}))
	}
	wo.Logger = p.Log.Named("writer")
	w, err := writer.Open(ctx, st, fence.NewToken(p.granted.epoch), wo)
	if err != nil {
		return p.refused(err)
	}
	p.Gauges.Note(true, p.granted.epoch)
	defer p.Gauges.Note(false, p.granted.epoch)
	err = s.Work(ctx, w)
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	if closed := w.Close(drain); err == nil {
		err = closed
	}
	return finished(err)
}

// finished gives the end of a session its exit status.
func finished(err error) error {
	end, ok := errors.AsType[*session.EndError](err)
	switch {
	case !ok:
		return err
	case end.Unknown > 0:
		return kit.Kind(kit.ErrOutcome, err)
	case end.Code == session.CodeFenced:
		return kit.Kind(kit.ErrRefused, err)
	case end.Code == session.CodeStopped && end.NotCommitted == 0 && errors.Is(err, context.Canceled):
		return nil // the client has resigned
	}
	return err
}
