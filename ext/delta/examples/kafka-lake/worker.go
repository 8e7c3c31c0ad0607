//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"sync"
	"time"

	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	_ "github.com/fencepost/fencepost/store/dirstore" // file://
	_ "github.com/fencepost/fencepost/store/memstore" // mem://
	_ "github.com/fencepost/fencepost/store/s3store"  // s3://
	"github.com/fencepost/fencepost/writer"
)

// config is what a worker and the narrator are told on the command line.
type config struct {
	worker, brokers, topic, store string
	partitions, rate              int
	flush, validity, grace        time.Duration
	rows                          uint64
	staged                        bool
}

// event is what a worker reports, as a line of JSON.
type event struct {
	Worker    string `json:"worker"`
	What      string `json:"what"` // "opens", "closes", "uploaded", "committed", "dies", "freezes", "answered", "waits", "not published"
	Partition int    `json:"partition"`
	Token     uint64 `json:"token,omitempty"`
	// Key is that of a commit, and File that of a file, below the table.
	Key  string `json:"key,omitempty"`
	File string `json:"file,omitempty"`
	Rows uint64 `json:"rows,omitempty"`
	// Refused: the store answered 412. Text is the whole answer.
	Refused bool   `json:"refused,omitempty"`
	Text    string `json:"text,omitempty"`
}

// openStores opens the two places below a URL: the group with its logs, and the root of the Delta
// table. The table has no log below it, and the logs have no file.
func openStores(ctx context.Context, url string) (logs, table store.Store, err error) {
	st, err := store.Open(ctx, url)
	if err != nil {
		return nil, nil, err
	}
	if logs, err = store.Sub(st, "logs"); err != nil {
		return nil, nil, err
	}
	table, err = store.Sub(st, "table")
	return logs, table, err
}

// reporter writes events as lines.
func reporter(name string, out io.Writer) func(event) {
	var mu sync.Mutex
	lines := json.NewEncoder(out)
	return func(e event) {
		mu.Lock()
		defer mu.Unlock()
		e.Worker = name
		_ = lines.Encode(e) // if nobody listens any more, nobody needs to know
	}
}

// runWorker runs a worker until ctx ends, and then leaves in good order. On the stage, the narrator's
// commands come from in, and its end ends the worker too: no worker outlives the narrator.
func runWorker(ctx context.Context, c config, in io.Reader, out io.Writer) error {
	report := reporter(c.worker, out)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var s *stage
	if c.staged {
		s = newStage(report)
		go func() {
			defer cancel()
			for lines := bufio.NewScanner(in); lines.Scan(); {
				s.arm(lines.Text())
			}
		}()
	}
	logs, table, err := openStores(ctx, c.store)
	if err != nil {
		return err
	}
	l := &lake{brokers: split(c.brokers), topic: c.topic, table: table, flush: c.flush, rows: c.rows}
	partitions, err := l.partitions(ctx)
	if err != nil {
		return err
	}
	l.committed = func(at cursor, rows uint64) {
		report(event{What: "committed", Partition: int(at.Partition), Rows: rows})
	}
	l.waits = func(partition int32, err error) {
		report(event{What: "waits", Partition: int(partition), Text: err.Error()})
	}
	published := make(chan error, 1)
	publishing, stop := context.WithCancel(ctx)
	go func() { published <- publish(publishing, logs, table, partitions, report) }()

	err = copyAll(ctx, c, l, logs, partitions, s, report)
	stop()
	return errors.Join(err, <-published)
}

// copyAll copies the partitions that this worker owns. The stage is nil outside of the story.
func copyAll(ctx context.Context, c config, l *lake, logs store.Store, partitions int, s *stage, report func(event)) error {
	files := l.table
	opened := func(*group.Session) {}
	if s != nil {
		logs, files = logsOn{logs, s}, filesOn{files, s}
		opened = func(p *group.Session) {
			f := p.Format()
			name := f.FileName(fmt.Sprintf("file/%020d/x", p.Epoch()))
			s.opened(p.Partition.Number(), uint64(p.Epoch()), path.Dir(name))
		}
	}
	opts := &group.RunOptions{
		Group: &group.Options{
			Partitions: partitions, Validity: c.validity, Identity: c.worker,
			// The work closes a Kafka client and aborts an upload, which may take seconds on a slow machine. Work
			// that takes longer ends the process.
			Drain: max(c.validity, 15*time.Second),
			Hooks: group.Hooks{Closed: func(e group.Closing) {
				what := event{What: "closes", Partition: e.Partition, Token: uint64(e.Token.Epoch())}
				if e.Cause == nil && e.Err != nil {
					what.Text = e.Err.Error()
				}
				report(what)
			}},
		},
		Writer: &writer.Options{Files: files, Init: &manifest.InitOptions{Files: files, Grace: c.grace}},
	}
	return group.Run(ctx, logs, opts, func(ctx context.Context, s *group.Session) error {
		opened(s)
		report(event{What: "opens", Partition: s.Partition.Number(), Token: uint64(s.Partition.Token().Epoch())})
		return l.copyPartition(ctx, s.Writer, int32(s.Partition.Number()))
	})
}

// publish publishes the table until ctx ends. Every worker does this: any number of publishers
// may run at once, so nobody is elected for it.
func publish(ctx context.Context, logs, table store.Store, partitions int, report func(event)) error {
	p, err := publisher(ctx, logs, table, partitions, &delta.Options{Name: "kafka-lake", Every: 500 * time.Millisecond, Hooks: delta.Hooks{
		Failed: func(err error) { report(event{What: "not published", Text: err.Error()}) },
	}})
	if err != nil {
		return err
	}
	return p.Run(ctx)
}
