package fencepost_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/verify"
	"github.com/fencepost/fencepost/writer"
)

// What tunes retries is checked wherever it can be given, before any request.
func TestRetriesAreValidated(t *testing.T) {
	bad := &store.SettleOptions{Reads: -1}
	for name, tt := range map[string]struct{ err, want error }{
		"manifest":  {(&manifest.InitOptions{Settle: bad}).Validate(), manifest.ErrOptions},
		"writer":    {(&writer.Options{Settle: bad}).Validate(), writer.ErrOptions},
		"reader":    {(&reader.Options{Settle: bad}).Validate(), reader.ErrOptions},
		"compactor": {(&compactor.Options{Settle: bad}).Validate(), compactor.ErrOptions},
		"verify":    {(&verify.Options{Settle: bad}).Validate(), verify.ErrOptions},
	} {
		if !errors.Is(tt.err, tt.want) || !strings.Contains(tt.err.Error(), "Reads is -1") {
			t.Errorf("%s: %v", name, tt.err)
		}
	}
}

// Run reports all faults at once, each with the path to its field.
func TestRunReportsAllFaults(t *testing.T) {
	err := fencepost.Run(t.Context(), nil, &fencepost.Options{Leader: &leader.Options{Validity: 1, StallAfter: -1}}, nil)
	if !errors.Is(err, fencepost.ErrOptions) || !errors.Is(err, leader.ErrOptions) {
		t.Fatal(err)
	}
	lines := strings.Split(err.Error(), "\n")
	for i, want := range []string{"Leader: leader: invalid options: Validity 1ns", "Leader: leader: invalid options: StallAfter", "work is nil", "store is nil"} {
		if len(lines) != 4 || !strings.HasPrefix(lines[i], "fencepost: invalid options: ") || !strings.Contains(lines[i], want) {
			t.Errorf("%q does not say %q, or is not one of four lines", lines, want)
		}
	}
}
