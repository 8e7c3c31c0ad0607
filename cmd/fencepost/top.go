package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/outside"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/screen"
)

func (a *app) topCmd() *cobra.Command {
	var once bool
	c := &cobra.Command{
		Use:   "top [--once] [--json] URL...",
		Short: "show logs and groups on the terminal, as they change",
		Long: `Top shows what serve shows, on a terminal: who leads and who led, the tail and the
floor, what is not folded, manifests, pins, and the shares of a group. Of a place where
fencepost exec runs, it shows who leads and who led.

It draws anew once in a second. Ctrl-C ends it. If standard output is no terminal, it
prints the state once, as with --once or --json.

The store gets at most --requests-per-minute. With 12, a new leader is seen within half
a minute. To print the state once takes some 15 requests for each URL, and at most some
60 if there are many past leaders or pins, or one more for each member of a group. They
are sent at once, unless --requests-per-minute is given.

It needs the right to read.`,
		Example: "fencepost top s3://bucket/orders",
		Args:    wantArgs(1, 100),
	}
	w := a.watching(c)
	a.jsonFlag(c)
	c.Flags().BoolVar(&once, "once", false, "print the state once, and end")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		fd, terminal := terminalOf(a.out)
		once = once || a.json || !terminal
		hub, err := w.hub(cmd.Context(), args, once)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(cmd.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = hub.Run(ctx)
		}()
		defer func() {
			cancel()
			<-ended
		}()
		if once {
			return w.topOnce(ctx, hub)
		}
		return a.topLive(ctx, hub, fd)
	}
	return c
}

func terminalOf(out io.Writer) (fd int, ok bool) {
	f, ok := out.(interface{ Fd() uintptr })
	if !ok {
		return 0, false
	}
	return int(f.Fd()), term.IsTerminal(int(f.Fd()))
}

// topOnce waits until each URL was read or has failed. Now and then it says which are left.
func (w *watching) topOnce(ctx context.Context, hub *outside.Hub) error {
	tick := time.NewTicker(w.patience)
	defer tick.Stop()
	for began := time.Now(); ; {
		all, changed := hub.States()
		var waits []string
		for _, s := range all {
			if s.Err == "" && !s.Looked() {
				waits = append(waits, s.URL)
			}
		}
		if len(waits) == 0 {
			return w.showTop(all)
		}
		select {
		case <-changed:
		case <-tick.C:
			w.con.note("%s", w.waits(waits, all, time.Since(began)))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// waits says which URLs are not read yet, and why that takes long.
func (w *watching) waits(urls []string, all []outside.State, so time.Duration) string {
	const most = 3
	names := strings.Join(urls[:min(len(urls), most)], ", ")
	if len(urls) > most {
		names += ", …"
	}
	why := "the store is slow, or does not answer"
	if w.perMinute > 0 {
		why = fmt.Sprintf("--requests-per-minute allows %d in a minute; without it a single look does not wait", w.perMinute)
	}
	return fmt.Sprintf("waiting for %v to read %d of %d: %s. %d requests so far: %s", so.Round(time.Second), len(urls), len(all), names, all[0].Requests, why)
}

// showTop prints states once.
func (a *app) showTop(all []outside.State) error {
	show := func() error { return a.write([]byte(screen.Render(all, 100, 0, false))) }
	if a.json {
		show = func() error { return a.print(all) }
	}
	if err := show(); err != nil {
		return err
	}
	for _, s := range all {
		if s.Err != "" {
			return fmt.Errorf("%s: %s", s.URL, s.Err)
		}
	}
	return nil
}

// The other screen of a terminal, without a cursor; and back.
const (
	enter = "\x1b[?1049h\x1b[?25l"
	leave = "\x1b[?25h\x1b[?1049l"
	home  = "\x1b[H"
)

func (a *app) topLive(ctx context.Context, hub *outside.Hub, fd int) error {
	if err := a.write([]byte(enter)); err != nil {
		return err
	}
	defer func() { _ = a.write([]byte(leave)) }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		width, height, err := term.GetSize(fd)
		if err != nil {
			width, height = 80, 24
		}
		all, _ := hub.States()
		if err := a.write([]byte(home + screen.Render(all, width, height, true))); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
