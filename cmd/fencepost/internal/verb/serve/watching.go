package serve

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/outside"
	"github.com/fencepost/fencepost/store"
)

// watching is what serve and exporter have in common.
type watching struct {
	*kit.Kit
	perMinute int
}

// watch lets a command watch URLs, and serve what handler makes of that until ctx ends. Text says where.
func watch(k *kit.Kit, c *cobra.Command, addr, help, text string, handler func(ctx context.Context, addr string, hub *outside.Hub) http.Handler) *cobra.Command {
	w := &watching{Kit: k}
	kit.CountVar(c.Flags(), &w.perMinute, "requests-per-minute", 12, "most requests to the store in a minute, for all URLs together")
	k.JSONFlag(c)
	c.Flags().StringVar(&addr, "listen", addr, help)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		hub, err := w.hub(cmd.Context(), args)
		if err != nil {
			return err
		}
		serving, cancel := context.WithCancel(cmd.Context())
		stop, err := k.Listen(addr, handler(serving, addr, hub), func(at net.Addr) { w.serving(text, at) })
		if err != nil {
			cancel()
			return err
		}
		defer stop()
		defer cancel() // before stop, which waits for those that are served
		return w.run(cmd.Context(), hub)
	}
	return c
}

// hub opens the stores and returns a hub that watches them.
func (w *watching) hub(ctx context.Context, urls []string) (*outside.Hub, error) {
	if w.perMinute > 6000 {
		return nil, kit.Usage("--requests-per-minute is %d; it must be at most 6000", w.perMinute)
	}
	for i, url := range urls {
		if slices.Contains(urls[:i], url) {
			return nil, kit.Usage("the URL %s is given twice", url)
		}
	}
	stores, err := w.stores(ctx, urls)
	if err != nil {
		return nil, err
	}
	var targets []outside.Target
	for _, st := range stores {
		name := st.Traits().Name
		same := func(t outside.Target) bool { return t.URL == name }
		if slices.ContainsFunc(targets, same) {
			name += " at " + st.Traits().Endpoint
		}
		if slices.ContainsFunc(targets, same) {
			return nil, kit.Usage("%s is given twice", name)
		}
		targets = append(targets, outside.Target{URL: name, Store: kit.Unwatched(st)})
	}
	return outside.New(targets, &outside.Options{PerMinute: w.perMinute}), nil
}

// stores opens all stores at once: each may take as long as --timeout. One that does not answer, or whose directory is
// missing, keeps nobody from watching the others. It may be there later.
func (w *watching) stores(ctx context.Context, urls []string) ([]store.Store, error) {
	stores, errs := make([]store.Store, len(urls)), make([]error, len(urls))
	var all sync.WaitGroup
	for i, url := range urls {
		all.Go(func() {
			st, err := w.Store(ctx, url, false)
			if missing := errors.Is(err, store.ErrNoBucket); (missing || errors.Is(err, store.ErrUnreachable)) && ctx.Err() == nil {
				w.Console.Note("%s; watching goes on, and tries again", kit.Line(err))
				if missing {
					st, err = w.later(url), nil
				} else {
					st, err = w.Opened(ctx, url, false)
				}
			}
			if _, dir := kit.Directory(url); dir && err == nil {
				st = w.follows(url, st)
			}
			stores[i], errs[i] = st, err
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return stores, nil
}

// later is a store that can perhaps be opened later: each request tries again. One whose directory was replaced is
// opened again. A hub only reads, so it has no other methods.
type later struct {
	store.Store // nil
	traits      store.Traits
	open        func(context.Context) (store.Store, error)

	mu sync.Mutex
	st store.Store
}

func (w *watching) later(raw string) *later {
	l := &later{traits: store.Traits{Name: raw}, open: func(ctx context.Context) (store.Store, error) { return w.Opened(ctx, raw, false) }}
	if u, err := url.Parse(raw); err == nil { // as the store itself will name it
		l.traits.Name = (&url.URL{Scheme: u.Scheme, Path: filepath.Clean(u.Path)}).String()
	}
	return l
}

// follows returns a store for a directory that is opened as st.
func (w *watching) follows(raw string, st store.Store) store.Store {
	if _, ok := st.(*later); ok {
		return st
	}
	l := w.later(raw)
	l.traits, l.st = st.Traits(), kit.Unwatched(st)
	return l
}

// failed is told why a request to st failed. A store does not follow its directory to another place.
func (l *later) failed(st store.Store, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.st == st && errors.Is(err, store.ErrNoBucket) {
		l.st = nil
	}
}

func (l *later) opened(ctx context.Context) (store.Store, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	if l.st == nil {
		l.st, err = l.open(ctx)
	}
	return l.st, err
}

func (l *later) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	st, err := l.opened(ctx)
	if err != nil {
		return nil, err
	}
	o, err := st.Get(ctx, key, opts)
	l.failed(st, err)
	return o, err
}

func (l *later) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		st, err := l.opened(ctx)
		if err != nil {
			yield(store.Info{}, err)
			return
		}
		for info, err := range st.List(ctx, prefix, opts) {
			l.failed(st, err)
			if !yield(info, err) {
				return
			}
		}
	}
}

func (l *later) Traits() store.Traits { return l.traits }

// run watches until ctx ends, and says when a look at a URL fails, and when one succeeds again.
func (w *watching) run(ctx context.Context, hub *outside.Hub) error {
	var report sync.WaitGroup
	defer report.Wait()
	report.Go(func() { w.report(ctx, hub) })
	return hub.Run(ctx)
}

// again is how long another failure is not told while a URL fails.
const again = 10 * time.Minute

func (w *watching) report(ctx context.Context, hub *outside.Hub) {
	told, at := map[string]string{}, map[string]time.Time{}
	for {
		all, changed := hub.States()
		for _, s := range all {
			switch last := told[s.URL]; {
			case s.Err == last, s.Err != "" && last != "" && time.Since(at[s.URL]) < again:
				continue
			case s.Err != "":
				w.Console.Note("%s: %s; looking again", s.URL, s.Err)
			default:
				w.Console.Note("%s is read again", s.URL)
			}
			told[s.URL], at[s.URL] = s.Err, time.Now()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// serving says where something is served: on standard error, or with --json on standard output.
func (w *watching) serving(text string, at net.Addr) {
	said := fmt.Sprintf(text, at)
	if !w.JSON {
		w.Console.Note("%s", said)
	} else if err := w.PrintLine(struct {
		URL string `json:"url"`
	}{said[max(strings.Index(said, "http:"), 0):]}); err != nil {
		w.Console.Note("%s", kit.Line(err))
	}
}
