package gate

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
)

// No command runs before its epoch is on the disk, with the name of the file: after a crash of the machine the gate would let
// a zombie pass. That is also so if another process has written the epoch.
func TestKeepBeforeTheCommand(t *testing.T) {
	dir := t.TempDir()
	file, ran := filepath.Join(dir, "gate"), filepath.Join(dir, "ran")
	kept := keep
	defer func() { keep = kept }()
	k := &kit.Kit{Console: kit.NewConsole(io.Discard, false, 0)}
	for range 2 {
		keep = func(*os.File) error { return errors.New("a disk") }
		if err := pass(t.Context(), k, file, 5, 0, []string{"touch", ran}); err == nil {
			t.Error("the command ran")
		}
		if _, err := os.Stat(ran); err == nil {
			t.Error("the command ran")
		}
	}
	keep = kept
	if err := pass(t.Context(), k, file, 5, 0, []string{"touch", ran}); err != nil {
		t.Error(err)
	}
}
