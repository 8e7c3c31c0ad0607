package state

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/manifest"
)

// SetProperties returns what edit e makes of the properties before it. It does not change
// before. The error is [fence.ErrLimit] if they become too many.
func SetProperties(e *manifest.Edit, before map[string]string) (map[string]string, error) {
	if len(e.Properties)+len(e.Unset) == 0 {
		return before, nil
	}
	after := make(map[string]string, len(before)+len(e.Properties))
	for name, value := range before {
		after[name] = value
	}
	for name, value := range e.Properties {
		after[name] = value
	}
	for _, name := range e.Unset {
		delete(after, name)
	}
	if len(after) == 0 {
		return nil, nil
	}
	return after, layout.CheckTexts("the properties", after, manifest.MaxProperties)
}

// EncodeEdit returns the document of an edit, for a log object. Errors: those of
// [Edit.Validate]; fence.ErrLimit if it is longer than [MaxEdit].
func EncodeEdit(e *manifest.Edit) ([]byte, error) {
	if err := e.Validate(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	b = layout.Lines(b)
	if len(b) > manifest.MaxEdit {
		return nil, fmt.Errorf("%w: an edit of %d bytes; at most %d are possible: commit it in several", fence.ErrLimit, len(b), manifest.MaxEdit)
	}
	return b, nil
}

// DecodeEdit reads what [EncodeEdit] writes. Errors: [fence.ErrCorrupt]; [fence.ErrFormat]
// if it says more than this program understands.
func DecodeEdit(doc []byte) (*manifest.Edit, error) {
	bad := func(err error) (*manifest.Edit, error) { return nil, fmt.Errorf("%w: edit: %w", fence.ErrCorrupt, err) }
	if len(doc) > manifest.MaxEdit {
		return bad(fmt.Errorf("it has %d bytes; at most %d are possible", len(doc), manifest.MaxEdit))
	}
	e := &manifest.Edit{}
	if err := layout.Unmarshal(doc, e); err != nil {
		return bad(err)
	}
	// guard:edit-whole. An edit is applied whole or not at all: a program refuses an edit that has a
	// field which it does not know.
	//
	//mutant:replace strict.Decode(&manifest.Edit{}) => error(nil)
	strict := json.NewDecoder(bytes.NewReader(doc))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&manifest.Edit{}); err != nil {
		return nil, fmt.Errorf("%w: edit: %w; upgrade this program", fence.ErrFormat, err)
	}
	if err := e.Validate(); err != nil {
		return bad(err)
	}
	return e, nil
}
