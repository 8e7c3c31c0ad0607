//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/store"
	_ "github.com/fencepost/fencepost/store/dirstore" // file://
)

// validity of a member. It is short so that the story is short; the default is 15 s.
const validity = 2 * time.Second

// event is what a worker reports to the narrator, as a line of JSON. At is in nanoseconds of this
// machine's time of day, which all workers share.
type event struct {
	Worker    string `json:"worker"`
	What      string `json:"what"` // "opens", "closes", "appended", "holds"
	Partition int    `json:"partition"`
	Token     uint64 `json:"token,omitempty"`
	Value     string `json:"value,omitempty"`
	At        int64  `json:"at"`
	// Until is, of "holds", when the worker stops if no further heartbeat is applied.
	Until int64 `json:"until,omitempty"`
}

func openStore(ctx context.Context, url, prefix string) (store.Store, error) {
	st, err := store.Open(ctx, url)
	if err != nil {
		return nil, err
	}
	return store.Sub(st, prefix)
}

// runWorker runs a worker. It leaves in good order on SIGTERM, and when its standard input ends, so no worker
// outlives the narrator.
func runWorker(ctx context.Context, url, prefix, name string, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	st, err := openStore(ctx, url, prefix)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	lines := json.NewEncoder(out)
	report := func(e event) {
		mu.Lock()
		defer mu.Unlock()
		e.Worker, e.At = name, time.Now().UnixNano()
		if e.Until > 0 {
			e.Until += e.At
		}
		if err := lines.Encode(e); err != nil {
			return // nobody listens any more
		}
	}
	opts := &group.RunOptions{Group: &group.Options{Identity: name, Hooks: group.Hooks{
		Heartbeat: func(h group.Heartbeat) {
			if h.Err == nil {
				report(event{What: "holds", Until: int64(h.Remaining)})
			}
		},
	}}}
	return group.Run(ctx, st, opts, func(ctx context.Context, s *group.Session) error {
		p, token := s.Partition.Number(), uint64(s.Partition.Token().Epoch())
		report(event{What: "opens", Partition: p, Token: token})
		defer func() { report(event{What: "closes", Partition: p, Token: token}) }()
		for i := 0; ; i++ {
			value := fmt.Sprintf("%s %d %d", name, token, i)
			if _, err := s.Append(ctx, [][]byte{[]byte(value)}); err != nil {
				return err
			}
			report(event{What: "appended", Partition: p, Value: value})
			select {
			case <-time.After(400 * time.Millisecond):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	})
}
