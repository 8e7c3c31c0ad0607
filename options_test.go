package fencepost_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/compactor"
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
