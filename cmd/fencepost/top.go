package main

import (
	"context"
	"fmt"
	"io"
	"os"
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
a minute.

It needs the right to read.`,
		Example: "fencepost top s3://bucket/orders",
		Args:    wantArgs(1, 100),
	}
	w := a.watching(c)
	a.jsonFlag(c)
	c.Flags().BoolVar(&once, "once", false, "print the state once, and end")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		hub, err := w.hub(cmd.Context(), args)
		if err != nil {
			return err
		}
		fd, terminal := terminalOf(a.out)
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
		if once || a.json || !terminal {
			return a.topOnce(ctx, hub)
		}
		return a.topLive(ctx, hub, fd)
	}
	return c
}

func terminalOf(out io.Writer) (fd int, ok bool) {
	f, ok := out.(*os.File)
	if !ok {
		return 0, false
	}
	return int(f.Fd()), term.IsTerminal(int(f.Fd()))
}

// topOnce waits until each URL was read or has failed.
func (a *app) topOnce(ctx context.Context, hub *outside.Hub) error {
	for {
		all, changed := hub.States()
		waits := false
		for _, s := range all {
			waits = waits || s.Err == "" && !s.Complete()
		}
		if !waits {
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
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
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
