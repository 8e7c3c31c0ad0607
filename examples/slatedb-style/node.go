//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

// validity of a leader's lock: short, so that the story is. 15 s is the default.
const validity = 2 * time.Second

// event is what a node tells the narrator, a line of JSON each.
type event struct {
	Node   string `json:"node"`
	What   string `json:"what"` // "leads", "put", "refused", "error"
	Epoch  uint64 `json:"epoch,omitempty"`
	Key    string `json:"key,omitempty"`
	Value  string `json:"value,omitempty"`
	Offset uint64 `json:"offset,omitempty"`
	Slot   string `json:"slot,omitempty"`
	By     uint64 `json:"by,omitempty"`
	Text   string `json:"text,omitempty"`
	Found  int    `json:"found,omitempty"` // keys in the memtable when it took over
}

func openStore(ctx context.Context, url, prefix string) (store.Store, error) {
	st, err := store.Open(ctx, url)
	if err != nil {
		return nil, err
	}
	return store.Sub(st, prefix)
}

// runNode is the life of a node: contend, lead, put keys; when fenced, contend
// again. It ends when its standard input does, so that no node outlives the
// narrator.
//
// It puts the parts together by hand, and on purpose without the writer's Until:
// fencepost.Run would stop the writer when the term is lost, if it gets the
// chance. A process that is frozen between its last check and its next request
// does not, and that is what is shown here: the log holds without it.
func runNode(ctx context.Context, url, prefix, name string, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	var mu sync.Mutex
	enc := json.NewEncoder(out)
	tell := func(e event) {
		mu.Lock()
		defer mu.Unlock()
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
			tell(event{What: "refused", Epoch: uint64(fenced.Epoch), Slot: fenced.Key, By: uint64(fenced.By), Text: fenced.Err.Error()})
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
	// Done means only that this process stops; the lock is freed either way.
	defer func() { _ = term.Resign(context.WithoutCancel(ctx)) }()
	// No checkpoint while the story goes: a zombie that wakes must first learn of
	// its fate where it counts, from the log.
	w, err := writer.Open(ctx, st, term.Token(), &writer.Options{Checkpoint: time.Minute})
	if err != nil {
		return err
	}
	defer func() { _ = w.Close(ctx) }()
	d, err := openDB(ctx, st, w)
	if err != nil {
		return err
	}
	tell(event{What: "leads", Epoch: uint64(term.Epoch()), Found: len(d.table)})
	for {
		n := d.puts
		key, value := fmt.Sprintf("key-%05d", n), fmt.Sprintf("%s, epoch %d", name, term.Epoch())
		offset, err := d.put(ctx, key, value)
		if err != nil {
			return err
		}
		tell(event{What: "put", Epoch: uint64(term.Epoch()), Key: key, Value: value, Offset: offset})
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
