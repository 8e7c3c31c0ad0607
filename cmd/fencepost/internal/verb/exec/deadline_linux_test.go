package exec

import (
	"io"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/supervise"
)

// The first deadline cannot be written, as on a disk that hangs. Exec waits for it only while the command may still start.
func TestFirstDeadlineHangs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "deadline")
	if err := syscall.Mkfifo(file+".new", 0o600); err != nil {
		t.Fatal(err)
	}
	x := &execution{Kit: &kit.Kit{Console: kit.NewConsole(io.Discard, false, 0)}}
	x.command(1, newDeadlines(file), time.Second, nil).Renewed(supervise.Now().Add(10 * time.Millisecond))
}
