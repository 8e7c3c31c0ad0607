//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

// validity of a leader's lock. It is short so that the story is short; the default is
// 15 s.
const validity = 2 * time.Second

// event is what a node reports to the narrator, as a line of JSON.
type event struct {
	Node   string      `json:"node"`
	What   string      `json:"what"` // "leads", "put", "refused", "error"
	Epoch  fence.Epoch `json:"epoch,omitempty"`
	Key    string      `json:"key,omitempty"`
	Value  string      `json:"value,omitempty"`
	Offset uint64      `json:"offset,omitempty"`
	Slot   string      `json:"slot,omitempty"`
	By     fence.Epoch `json:"by,omitempty"`
	Text   string      `json:"text,omitempty"`
	Found  int         `json:"found,omitempty"` // keys in the memtable when it took over
}

func openStore(ctx context.Context, url, prefix string) (store.Store, error) {
	st, err := store.Open(ctx, url)
	if err != nil {
		return nil, err
	}
	return store.Sub(st, prefix)
}

// runNode runs a node: it contends, leads and puts keys, and contends again when it is
// fenced. It ends when its standard input ends, so no node outlives the narrator.
//
// It uses leader and writer without fencepost.Run and leaves the writer's Until empty.
// Run stops the writer as soon as the process notices that its term is lost. A process
// that is frozen between its last check and its next request does not notice in time.
// This example shows that case: the log refuses the request without any help.
func runNode(ctx context.Context, url, prefix, name string, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	enc := json.NewEncoder(out)
	tell := func(e event) {
		e.Node = name
		if err := enc.Encode(e); err != nil {
			cancel() // the narrator is gone
		}
	}
	st, err := openStore(ctx, url, prefix)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		err := lead(ctx, st, name, tell)
		var fenced *fence.FencedError
		switch {
		case ctx.Err() != nil:
		case errors.As(err, &fenced) && errors.Is(err, store.ErrPrecondition):
			tell(event{What: "refused", Epoch: fenced.Epoch, Slot: fenced.Key, By: fenced.By})
		case err != nil:
			tell(event{What: "error", Text: err.Error()})
		}
	}
	return nil
}

func lead(ctx context.Context, st store.Store, name string, tell func(event)) error {
	e, err := leader.New(st, fencepost.LockPrefix, &leader.Options{Identity: name, Validity: validity})
	if err != nil {
		return err
	}
	term, err := e.Campaign(ctx)
	if err != nil {
		return err
	}
	// Resign also when ctx has ended, so that the next leader need not wait.
	defer func() { _ = term.Resign(context.WithoutCancel(ctx)) }()
	// No checkpoint is due during the story. So the log, and not a manifest, is the
	// first to refuse the zombie.
	w, err := writer.Open(ctx, st, term.Token(), &writer.Options{Checkpoint: time.Minute})
	if err != nil {
		return err
	}
	defer func() { _ = w.Close(ctx) }()
	d, err := openDB(ctx, st, w)
	if err != nil {
		return err
	}
	tell(event{What: "leads", Epoch: term.Epoch(), Found: len(d.table)})
	for {
		n := d.puts
		key, value := fmt.Sprintf("key-%05d", n), fmt.Sprintf("%s, epoch %d", name, term.Epoch())
		offset, err := d.put(ctx, key, value)
		if err != nil {
			return err
		}
		tell(event{What: "put", Epoch: term.Epoch(), Key: key, Value: value, Offset: offset})
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
