package state

import (
	"fmt"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store/document"
)

func (m *Manifest) encode(limit int64) ([]byte, error) {
	b, err := document.Encode(layout.ManifestKey(m.Version), m)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%w: manifest %d would have %d bytes; the log allows %d", fence.ErrLimit, m.Version, len(b), limit)
	}
	return b, nil
}

// decode reads a manifest and checks that nothing in it contradicts the rest.
func decode(key string, body []byte, f manifest.Format) (*Manifest, error) {
	m := &Manifest{}
	if err := document.Decode(key, body, m); err != nil {
		return nil, err
	}
	if err := m.check(key, f); err != nil {
		return nil, err
	}
	return m, nil
}
