package manifest

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/fencepost/fencepost/internal/layout"
)

const (
	// MaxEdit is how many bytes an encoded edit may have. Larger changes are committed in
	// several edits.
	MaxEdit = 4 << 20
	// MaxMeta is how many bytes the names and values of a file's Meta may take together as
	// JSON.
	MaxMeta = 1 << 10
	// MaxProperties is how many bytes the names and values of a table's properties
	// may take together as JSON.
	MaxProperties = 32 << 10
)

// File is a file of the log's table: an object below file/ that a writer has created and
// a commit has added.
type File struct {
	// Key names the object, as writer.FileWriter returned it.
	Key string `json:"key"`
	// Size of the object, in bytes, and the CRC-32C of these bytes.
	Size   int64  `json:"size"`
	CRC32C uint32 `json:"crc32c"`
	// Records is how many records it holds, if the application counts them.
	Records uint64 `json:"records,omitempty"`
	// Meta is the application's own: a partition, the least and the greatest key. At most
	// [MaxMeta] bytes of UTF-8.
	Meta map[string]string `json:"meta,omitempty"`
}

// Edit is one change of the table. It is applied whole or not at all.
type Edit struct {
	// Add are files of the epoch in which the edit is committed. No file is ever added
	// twice, not even after it was removed.
	Add []File `json:"add,omitempty"`
	// Remove are keys of live files.
	Remove []string `json:"remove,omitempty"`
	// Properties are set; those named in Unset are removed.
	Properties map[string]string `json:"properties,omitempty"`
	Unset      []string          `json:"unset,omitempty"`
}

// Validate checks the shape of an edit: it changes something, its keys are keys of files,
// no key is there twice, and sizes and texts are within the limits. It cannot tell whether
// the files are live. The error is [fence.ErrLimit] if a limit is exceeded.
func (e *Edit) Validate() error {
	if len(e.Add)+len(e.Remove)+len(e.Properties)+len(e.Unset) == 0 {
		return errors.New("manifest: an edit that changes nothing")
	}
	seen := make(map[string]bool, len(e.Add)+len(e.Remove))
	for i := range e.Add {
		f := &e.Add[i]
		if err := f.Validate(); err != nil {
			return err
		}
		if seen[f.Key] {
			return fmt.Errorf("manifest: file %s is added twice", f.Key)
		}
		seen[f.Key] = true
	}
	for _, key := range e.Remove {
		switch _, _, _, ok := layout.ParseFileKey(key); {
		case !ok:
			return fmt.Errorf("manifest: %q has no name of a file; a file's key is that of a writer's CreateFile", key)
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
	return layout.CheckTexts("the properties", e.Properties, MaxProperties)
}

// Validate checks the shape of a file to be added: its key, size and texts.
func (f *File) Validate() error {
	epoch, _, _, ok := layout.ParseFileKey(f.Key)
	switch {
	case f.Key == "":
		return errors.New("manifest: a file to be added has no key; close the file with writer.FileWriter.Close first, and add it only if that returned nil")
	case !ok || epoch == 0:
		return fmt.Errorf("manifest: %q has no name of a file; a file's key is that of a writer's CreateFile", f.Key)
	case f.Size < 0:
		return fmt.Errorf("manifest: file %s has %d bytes", f.Key, f.Size)
	}
	return layout.CheckTexts("the meta of "+f.Key, f.Meta, MaxMeta)
}
