//go:build integration && unix

package engines

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "github.com/fencepost/fencepost" // the drivers
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/ext/iceberg"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/servers"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

// roleEnv makes the test binary a worker. The others say on which log it works, and how long a
// writer pauses after a commit at most.
const (
	roleEnv  = "FENCEPOST_ENGINES_ROLE"
	workURL  = "FENCEPOST_ENGINES_LOG"
	pauseEnv = "FENCEPOST_ENGINES_PAUSE"
	// locationEnv lets publishers write Iceberg too, at this URL.
	locationEnv = "FENCEPOST_ENGINES_LOCATION"
)

var roles = map[string]func(context.Context, store.Store) error{"writer": write, "compactor": compact, "publisher": publish}

func TestMain(m *testing.M) {
	role, ok := roles[os.Getenv(roleEnv)]
	if !ok {
		os.Exit(m.Run())
	}
	st, err := store.Open(context.Background(), os.Getenv(workURL))
	if err == nil {
		err = role(context.Background(), st)
	}
	if errors.Is(err, writer.ErrFenced) {
		os.Exit(0) // another writer has taken over
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// row of the table. The numbers are consecutive over all commits, so that each state of the table
// shows by itself whether a row is missing or doubled.
type row struct {
	ID   int64   `parquet:"id"`
	Name string  `parquet:"name"`
	Sum  float64 `parquet:"sum"`
}

// span is the numbers From up to To, without To. The span of the whole table is the cursor of each commit.
type span struct{ From, To int64 }

// token outranks all that were made before on this machine.
func token() fence.Token { return fence.NewToken(fence.Epoch(time.Now().UnixNano())) }

// write commits edits until it is fenced. An edit adds rows at the end. Some also remove the oldest
// rows, or replace the two oldest files by one.
func write(ctx context.Context, st store.Store) error {
	pause, err := time.ParseDuration(os.Getenv(pauseEnv))
	if err != nil {
		return err
	}
	w, err := writer.Open(ctx, st, token(), nil)
	if err != nil {
		return err
	}
	var all span
	if c := w.Recovered().Cursor; len(c) > 0 {
		if err := json.Unmarshal(c, &all); err != nil {
			return err
		}
	}
	live, err := liveFiles(ctx, st, w.Epoch())
	if err != nil {
		return err
	}
	d, err := delta.NewWriter[row](ctx, w, nil)
	if err != nil {
		return err
	}
	for {
		next := span{all.To, all.To + 1 + rand.Int64N(50)}
		add, err := file(ctx, d, next)
		if err != nil {
			return err
		}
		edit := manifest.Edit{Add: []manifest.File{add}}
		all.To, live = next.To, append(live, part{add.Key, next})
		switch {
		case len(live) > 12 || len(live) > 3 && rand.IntN(4) == 0:
			edit.Remove = []string{live[0].key}
			all.From, live = live[0].To, live[1:]
		case len(live) > 3 && rand.IntN(4) == 0:
			merged := part{span: span{live[0].From, live[1].To}}
			add, err := file(ctx, d, merged.span)
			if err != nil {
				return err
			}
			edit.Remove = []string{live[0].key, live[1].key}
			if err := add.SetReplaces(edit.Remove); err != nil {
				return err
			}
			edit.Add = append(edit.Add, add)
			merged.key = add.Key
			live = append([]part{merged}, live[2:]...)
		}
		cursor, err := json.Marshal(all)
		if err == nil {
			err = w.CommitFiles(ctx, edit, writer.Cursor(cursor))
		}
		if err != nil {
			return err
		}
		time.Sleep(rand.N(pause))
	}
}

// part is a live file.
type part struct {
	key string
	span
}

// file writes the rows of a span.
func file(ctx context.Context, d *delta.Writer[row], s span) (manifest.File, error) {
	var rows []row
	for id := s.From; id < s.To; id++ {
		rows = append(rows, row{ID: id, Name: fmt.Sprint("order ", id), Sum: float64(id) / 4})
	}
	if err := d.Write(ctx, rows); err != nil {
		return manifest.File{}, err
	}
	files, err := d.Finish(ctx)
	if err != nil {
		return manifest.File{}, err
	}
	files[0].Meta = map[string]string{"from": fmt.Sprint(s.From), "to": fmt.Sprint(s.To)}
	return files[0], nil
}

// liveFiles returns the files that are live when an epoch begins, in the order of their rows.
func liveFiles(ctx context.Context, st store.Store, epoch fence.Epoch) (live []part, err error) {
	r, err := reader.Open(ctx, st, nil)
	if err != nil {
		return nil, err
	}
	t := r.Table()
	if _, err := t.Read(ctx); err != nil {
		return nil, err
	}
	if t.End().Slot.Epoch > epoch {
		// The successor's files are among those that were read.
		return nil, fmt.Errorf("epoch %d: %w", epoch, writer.ErrFenced)
	}
	for f, err := range t.Files(ctx) {
		if err != nil {
			return nil, err
		}
		p := part{key: f.Key}
		p.From, err = strconv.ParseInt(f.Meta["from"], 10, 64)
		if err == nil {
			p.To, err = strconv.ParseInt(f.Meta["to"], 10, 64)
		}
		if err != nil {
			return nil, err
		}
		live = append(live, p)
	}
	slices.SortFunc(live, func(a, b part) int { return int(a.From - b.From) })
	return live, nil
}

// compact folds and prunes for ever.
func compact(ctx context.Context, st store.Store) error {
	for {
		c, err := compactor.New(st, &compactor.Options{Token: token()})
		if err != nil {
			return err
		}
		if _, err := c.Once(ctx); err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func publish(ctx context.Context, st store.Store) error {
	p, err := publisher(ctx, st)
	if err != nil {
		return err
	}
	return p.Run(ctx)
}

func publisher(ctx context.Context, st store.Store) (*delta.Publisher, error) {
	root, src, err := delta.Beside(st)
	if err != nil {
		return nil, err
	}
	o := &delta.Options{}
	if location := os.Getenv(locationEnv); location != "" {
		o.Formats = []delta.Format{delta.Lake(), iceberg.Format(location)}
	}
	return delta.Open(ctx, root, []delta.Source{src}, o)
}

// staff are the workers that run at the same time.
var staff = []string{"writer", "writer", "compactor", "publisher", "publisher"}

// crew runs workers and kills each at a random moment, again and again.
type crew struct {
	t      *testing.T
	url    string
	g      sync.WaitGroup
	killed atomic.Int64
}

// start lets the workers work until ctx ends.
func (c *crew) start(ctx context.Context) {
	for _, role := range staff {
		c.g.Go(func() {
			for ctx.Err() == nil {
				c.live(ctx, role)
			}
		})
	}
}

// live is one life of a worker.
func (c *crew) live(ctx context.Context, role string) {
	self, err := os.Executable()
	if err != nil {
		c.t.Error(err)
		return
	}
	said, err := os.CreateTemp(c.t.TempDir(), role)
	if err != nil {
		c.t.Error(err)
		return
	}
	defer said.Close()
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleEnv+"="+role, workURL+"="+c.url, pauseEnv+"="+pause.String())
	cmd.Stdout, cmd.Stderr = said, said
	ended, err := servers.Spawn(cmd)
	if err != nil {
		c.t.Error(err)
		return
	}
	end := time.After(rand.N(2 * time.Second))
	select {
	case <-end:
		c.kill(cmd, ended)
	case <-ctx.Done():
		c.kill(cmd, ended)
	case <-ended:
		if cmd.ProcessState.ExitCode() != 0 {
			text, _ := os.ReadFile(said.Name())
			c.t.Errorf("%s ended: %v\n%s", role, cmd.ProcessState, text)
		}
		select {
		case <-end: // the other writer works meanwhile
		case <-ctx.Done():
		}
	}
}

func (c *crew) kill(cmd *exec.Cmd, ended <-chan struct{}) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // ESRCH: it has just ended
	<-ended
	c.killed.Add(1)
}
