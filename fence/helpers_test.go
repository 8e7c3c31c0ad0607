package fence

import (
	"errors"
	"strings"
	"testing"
)

var (
	testID    = ID{0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f}
	testNonce = ID{0x20}
)

// wantErr fails the test unless err is kind and says text.
func wantErr(t *testing.T, err, kind error, text string) {
	t.Helper()
	if !errors.Is(err, kind) || !strings.Contains(err.Error(), text) {
		t.Errorf("error is %q, want one that is %q and says %q", err, kind, text)
	}
}
