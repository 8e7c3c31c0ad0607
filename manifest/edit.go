package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/fencepost/fencepost/fence"
)

const (
	// MaxEdit is how many bytes an edit may have when it is encoded. What is more
	// has to be committed in several.
	MaxEdit = 4 << 20
	// MaxMeta is how many bytes the names and values of a file's Meta may take
	// together as JSON.
	MaxMeta = 1 << 10
	// MaxProperties is how many bytes the names and values of a table's properties
	// may take together as JSON.
	MaxProperties = 32 << 10
)

// File is a file of the log's table: an object below file/, which the leader of
// its epoch has written and a commit has added.
type File struct {
	// Key is one that [FileKey] makes.
	Key string `json:"key"`
	// Size of the object, in bytes.
	Size int64 `json:"size"`
	// Records is how many records it holds, if the application counts them.
	Records uint64 `json:"records,omitempty"`
	// Meta is the application's: a partition, the least and greatest key. At most
	// [MaxMeta] bytes of UTF-8.
	Meta map[string]string `json:"meta,omitempty"`
}

// Edit is one change of the table. It is applied whole or not at all.
type Edit struct {
	// Add are files of the epoch in which the edit is committed. No file is added a
	// second time, also not after it was removed.
	Add []File `json:"add,omitempty"`
	// Remove are keys of live files.
	Remove []string `json:"remove,omitempty"`
	// Properties are set, those in Unset are taken away.
	Properties map[string]string `json:"properties,omitempty"`
	Unset      []string          `json:"unset,omitempty"`
}

// Validate checks the shape of an edit: it changes something, its keys are those
// of files, none is there twice, sizes and texts are within the limits. Whether the
// files are live it cannot tell. The error says which is wrong; one of a limit is
// fence.ErrLimit.
func (e *Edit) Validate() error {
	if len(e.Add)+len(e.Remove)+len(e.Properties)+len(e.Unset) == 0 {
		return errors.New("manifest: an edit that changes nothing")
	}
	seen := make(map[string]bool, len(e.Add)+len(e.Remove))
	for i := range e.Add {
		f := &e.Add[i]
		if err := f.validate(); err != nil {
			return err
		}
		if seen[f.Key] {
			return fmt.Errorf("manifest: file %s is added twice", f.Key)
		}
		seen[f.Key] = true
	}
	for _, key := range e.Remove {
		switch _, _, _, ok := ParseFileKey(key); {
		case !ok:
			return fmt.Errorf("manifest: %q has no name of a file; keys are made by FileKey", key)
		case seen[key]:
			return fmt.Errorf("manifest: file %s is removed twice, or added too", key)
		}
		seen[key] = true
	}
	for _, name := range e.Unset {
		if _, set := e.Properties[name]; set {
			return fmt.Errorf("manifest: property %q is set and unset", name)
		}
		if !utf8.ValidString(name) {
			return fmt.Errorf("manifest: the property %q is not UTF-8", name)
		}
	}
	return validTexts("the properties", e.Properties, MaxProperties)
}

func (f *File) validate() error {
	epoch, _, _, ok := ParseFileKey(f.Key)
	switch {
	case f.Key == "":
		return errors.New("manifest: a file to be added has no key; it may be of a writer's file that was not closed, or in vain")
	case !ok || epoch == 0:
		return fmt.Errorf("manifest: %q has no name of a file; keys are made by FileKey", f.Key)
	case f.Size < 0:
		return fmt.Errorf("manifest: file %s has %d bytes", f.Key, f.Size)
	}
	return validTexts("the meta of "+f.Key, f.Meta, MaxMeta)
}

// validTexts checks what JSON must be able to give back as it was.
func validTexts(what string, texts map[string]string, limit int) error {
	for name, value := range texts {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return fmt.Errorf("manifest: %s %q is not UTF-8; encode binary values, with base64 for example", what, name)
		}
	}
	if n := metaLen(texts); n > limit {
		return fmt.Errorf("%w: %s have %d bytes; at most %d are possible: put more into an object, and its key here", fence.ErrLimit, what, n, limit)
	}
	return nil
}

// metaLen is how many bytes texts take in JSON, about.
func metaLen(texts map[string]string) int {
	n := 0
	for name, value := range texts {
		n += textLen(name) + textLen(value)
	}
	return n
}

// SetProperties returns the properties that an edit makes of those before it,
// which it does not change. The error is fence.ErrLimit if they become too many.
func (e *Edit) SetProperties(before map[string]string) (map[string]string, error) {
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
	return after, validTexts("the properties", after, MaxProperties)
}

// EncodeEdit returns the document of an edit, for a log object. Errors: those of
// [Edit.Validate]; fence.ErrLimit if it is longer than [MaxEdit].
func EncodeEdit(e *Edit) ([]byte, error) {
	if err := e.Validate(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	b = lines(b)
	if len(b) > MaxEdit {
		return nil, fmt.Errorf("%w: an edit of %d bytes; at most %d are possible: commit it in several", fence.ErrLimit, len(b), MaxEdit)
	}
	return b, nil
}

// DecodeEdit reads what [EncodeEdit] writes. Errors: [ErrCorrupt]; [ErrFormat] if
// it says more than this program understands, since nobody may apply a part of it.
func DecodeEdit(doc []byte) (*Edit, error) {
	bad := func(err error) (*Edit, error) { return nil, fmt.Errorf("%w: edit: %w", ErrCorrupt, err) }
	if len(doc) > MaxEdit {
		return bad(fmt.Errorf("it has %d bytes; at most %d are possible", len(doc), MaxEdit))
	}
	e := &Edit{}
	if err := unmarshal(doc, e); err != nil {
		return bad(err)
	}
	// guard:edit-whole. A field that this version does not know may change what the edit
	// does to the table: leaving it out would make another table.
	//
	//mutant:replace strict.Decode(&Edit{}) => error(nil)
	strict := json.NewDecoder(bytes.NewReader(doc))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&Edit{}); err != nil {
		return nil, fmt.Errorf("%w: edit: %w; upgrade this program", ErrFormat, err)
	}
	if err := e.Validate(); err != nil {
		return bad(err)
	}
	return e, nil
}
