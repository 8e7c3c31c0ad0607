package document_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/store/document"
)

// FuzzDecode: whatever the bytes, there is a document or an error, and what that takes is bounded.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("{\n \"format\": 1,\n \"a\": 1\n}"))
	f.Add([]byte(`{"format":1,"requires":["x","y"]}`))
	f.Add([]byte(`{"format":1,"requires":["","","","","",""]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		body = document.Sum("k", body)
		var doc map[string]json.RawMessage
		var err error
		test.Affords(t, len(body), 64, 64<<10, func() { err = document.Decode("k", body, &doc) })
		if err != nil && !errors.Is(err, fence.ErrCorrupt) && !errors.Is(err, fence.ErrFormat) {
			t.Error(err)
		}
	})
}
