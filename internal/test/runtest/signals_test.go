package runtest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// runUntilSignal is how a program ends: the first signal lets Run hand over, the second ends the
// process.
func runUntilSignal(st store.Store, work func(context.Context, *fencepost.Session) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // from now on a signal ends the process at once
	return fencepost.Run(ctx, st, nil, work)
}

// asProgram makes TestSecondSignal a program that a test can send signals to.
const asProgram = "FENCEPOST_TEST_AS_PROGRAM"

// While the store hangs, Run works on its end for up to 25 s. The second signal ends the process
// before that.
func TestSecondSignal(t *testing.T) {
	if os.Getenv(asProgram) != "" {
		st := faultstore.New(memstore.New(nil), nil)
		err := runUntilSignal(st, func(ctx context.Context, _ *fencepost.Session) error {
			st.SetHook(func(faultstore.Op) faultstore.Fault { return faultstore.Fault{Drop: true, Hang: true} })
			fmt.Println("leads")
			<-ctx.Done()
			return context.Cause(ctx)
		})
		fmt.Println("Run has returned:", err)
		os.Exit(1)
	}
	c := exec.Command(os.Args[0], "-test.run=^TestSecondSignal$")
	c.Env = append(os.Environ(), asProgram+"=1")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "leads" {
		t.Fatalf("it says %q", lines.Text())
	}
	said := make(chan string, 1)
	go func() {
		lines.Scan()
		said <- lines.Text()
	}()
	for sent := 0; ; sent++ {
		_ = c.Process.Signal(syscall.SIGTERM) // an error if it has ended
		select {
		case s := <-said:
			exit, _ := errors.AsType[*exec.ExitError](c.Wait())
			if exit == nil || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM || sent == 0 {
				t.Errorf("after %d signals: %v, and it said %q", sent, exit, s)
			}
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}
