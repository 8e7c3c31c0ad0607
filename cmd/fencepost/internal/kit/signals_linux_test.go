package kit

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"
)

// TestOutputAfterSignal: what is read after a signal is written whole, and what is not read is given up for good.
func TestOutputAfterSignal(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	in, file, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer file.Close()
	out := NewOutput(ctx, file)
	cancel()
	if n, err := out.Write([]byte("read")); n != 4 || err != nil {
		t.Fatal(n, err)
	}
	large := make([]byte, 1<<20)
	go func() {
		time.Sleep(100 * time.Millisecond)
		_, _ = io.ReadFull(in, make([]byte, 4+len(large)))
	}()
	if n, err := out.Write(large); n != len(large) || err != nil {
		t.Fatal(n, err)
	}
	slow := make(chan struct{})
	go func() { // slower than lastWords for all of it, and never silent for so long
		defer close(slow)
		for range 6 {
			time.Sleep(LastWords / 3)
			_, _ = io.ReadFull(in, make([]byte, 40<<10))
		}
	}()
	if n, err := out.Write(large[:256<<10]); n != 256<<10 || err != nil {
		t.Fatal(n, err)
	}
	<-slow
	if n, err := out.Write(large); n > 128<<10 || !errors.Is(err, errStuck) {
		t.Fatal(n, err)
	}
	if n, err := out.Write(large); n != 0 || !errors.Is(err, errStuck) {
		t.Fatal(n, err)
	}
}
