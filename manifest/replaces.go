package manifest

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
)

// metaReplaces is the entry of a file's Meta that lists the files whose rows it has.
const metaReplaces = "replaces"

// SetReplaces notes in Meta that the file has the rows of other files, and no rows of its own.
// Who follows the table knows then that the rows are not new. Each key takes some 22 bytes of
// [MaxMeta]. The error is [fence.ErrLimit] if Meta becomes too large.
func (f *File) SetReplaces(keys []string) error {
	list, err := packKeys(keys)
	if err != nil {
		return err
	}
	meta := map[string]string{metaReplaces: list}
	for name, value := range f.Meta {
		if name == metaReplaces {
			return fmt.Errorf("manifest: the meta of a file has an entry %q already, which is for the files that it replaces: call it something else", name)
		}
		meta[name] = value
	}
	with := *f
	with.Meta = meta
	if err := with.Validate(); err != nil {
		return err
	}
	*f = with
	return nil
}

// Replaces returns the keys that [File.SetReplaces] has noted; none if it was not called. An
// entry that something else has written is [fence.ErrCorrupt].
func (f *File) Replaces() ([]string, error) {
	list, ok := f.Meta[metaReplaces]
	if !ok {
		return nil, nil
	}
	keys, err := unpackKeys(list)
	if err != nil {
		return nil, fmt.Errorf("%w: file %s: its entry %q: %w", fence.ErrCorrupt, f.Key, metaReplaces, err)
	}
	return keys, nil
}

// packKeys writes keys in as few bytes as possible: "<epoch><ext>:" and the ids in base64, for
// each run of keys with one epoch and one extension, with spaces between the runs.
func packKeys(keys []string) (string, error) {
	var b strings.Builder
	var ids []byte
	last := ""
	flush := func() {
		b.WriteString(base64.RawURLEncoding.EncodeToString(ids))
		ids = ids[:0]
	}
	for _, key := range keys {
		epoch, name, ext, ok := layout.ParseFileKey(key)
		if !ok {
			return "", fmt.Errorf("manifest: %q has no name of a file", key)
		}
		if run := fmt.Sprintf("%d%s:", epoch, ext); run != last {
			flush()
			if last != "" {
				b.WriteByte(' ')
			}
			b.WriteString(run)
			last = run
		}
		id, err := uuid.Parse(name)
		if err != nil {
			return "", err
		}
		ids = append(ids, id[:]...)
	}
	flush()
	return b.String(), nil
}

func unpackKeys(list string) (keys []string, err error) {
	for _, run := range strings.Fields(list) {
		head, text, ok := strings.Cut(run, ":")
		number, ext := head, ""
		if i := strings.IndexByte(head, '.'); i >= 0 {
			number, ext = head[:i], head[i:]
		}
		epoch, err := strconv.ParseUint(number, 10, 64)
		if !ok || err != nil {
			return nil, fmt.Errorf("%q does not begin with an epoch, an extension and a colon", run)
		}
		ids, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil || len(ids)%16 != 0 {
			return nil, fmt.Errorf("%q has no list of ids after the colon", run)
		}
		for ; len(ids) > 0; ids = ids[16:] {
			key := layout.FileKey(fence.Epoch(epoch), uuid.UUID(ids[:16]).String(), ext)
			if _, _, _, ok := layout.ParseFileKey(key); !ok {
				return nil, fmt.Errorf("%q is no name of a file", key)
			}
			keys = append(keys, key)
		}
	}
	return keys, nil
}
