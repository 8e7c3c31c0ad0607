package kit

import (
	"errors"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/store"
)

func TestLine(t *testing.T) {
	err := errors.Join(errors.New("one"), errors.New("two"), &store.Error{Op: "get", Key: "x", Kind: store.ErrDenied})
	if got := Line(err); strings.Contains(got, "\n") || !strings.Contains(got, "one; two; store:") || !strings.HasSuffix(got, "(check the credentials, and which requests they allow)") {
		t.Error(got)
	}
}
