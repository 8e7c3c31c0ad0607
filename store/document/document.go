package document

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"path"
	"slices"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
)

// Format is the format of all documents that this program writes, and the only
// one that it reads.
const Format = 1

// Encode returns v as the document that stands under a key, with its checksum. v has at
// least one member.
func Encode(key string, v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", key, err)
	}
	return Sum(key, layout.Lines(b)), nil
}

// The last line of a document but one, from the comma on, is its checksum.
const (
	sumBegin = ",\n \"checksum\": \""
	sumEnd   = "\"\n}\n"
	sumLen   = len(sumBegin) + 8 + len(sumEnd)
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Sum returns a JSON object with its checksum as the last member, in the place of one that it
// may have. It is for [Encode], and for tests that change a document.
func Sum(key string, doc []byte) []byte {
	if before, _, ok := cutSum(doc); ok {
		doc = before
	} else {
		doc = bytes.TrimRight(bytes.TrimSuffix(bytes.TrimRight(doc, "\n "), []byte("}")), "\n ")
	}
	return fmt.Appendf(doc[:len(doc):len(doc)], "%s%08x%s", sumBegin, sum(key, doc), sumEnd)
}

// cutSum takes a document apart: the bytes that are summed up, and the digits of the sum.
func cutSum(doc []byte) (before []byte, digits string, ok bool) {
	n := len(doc) - sumLen
	if n < 0 || string(doc[n:n+len(sumBegin)]) != sumBegin || string(doc[len(doc)-len(sumEnd):]) != sumEnd {
		return nil, "", false
	}
	return doc[:n], string(doc[n+len(sumBegin) : len(doc)-len(sumEnd)]), true
}

// sum is the CRC-32C of a document's name and of its bytes before the checksum. The name is
// the key without its folders, since an election may live below any prefix.
func sum(key string, before []byte) uint32 {
	name := crc32.Checksum([]byte(path.Base(key)+"\n"), castagnoli)
	return crc32.Update(name, castagnoli, before)
}

// checkSum returns an error unless a document is as it was written, and under its own name.
func checkSum(key string, body []byte) error {
	// guard:document-sum. A document is damaged if it does not fit its checksum, of the last part of
	// its key and of all bytes before the checksum.
	//
	//mutant:replace got != want => false
	before, want, ok := cutSum(body)
	if !ok {
		return Corrupt(key, "it does not end with its checksum: it was cut off, or something else than this program has written it")
	}
	if got := fmt.Sprintf("%08x", sum(key, before)); got != want {
		return Corrupt(key, "its checksum is %s, and it says %s: its bytes were changed, or it has got another name", got, want)
	}
	return nil
}

// Decode reads the document that stands under a key into v, unless it requires a feature that
// is not among those known. Errors: [fence.ErrCorrupt], and [fence.ErrFormat] if v might have
// another shape.
func Decode(key string, body []byte, v any, known ...string) error {
	// The checksum comes before the format, and has the same place in every format. Otherwise
	// a damaged digit of the format would tell people to upgrade.
	if err := checkSum(key, body); err != nil {
		return err
	}
	if err := understood(key, body, known); err != nil {
		return err
	}
	if err := layout.Unmarshal(body, v); err != nil {
		return Corrupt(key, "%v", err)
	}
	return nil
}

// plain is how each document begins that this program has written.
var plain = fmt.Appendf(nil, "{\n \"format\": %d,\n", Format)

// understood returns nil if this program may read a document at all: it knows the format,
// and every feature that the document requires. It looks at nothing else, since in another
// format all else may have another shape. Unknown members are ignored.
func understood(key string, body []byte, known []string) error {
	if bytes.HasPrefix(body, plain) && !bytes.Contains(body, []byte("requires")) {
		return nil // the common case, without reading all of it
	}
	var v struct {
		Format   int             `json:"format"`
		Requires json.RawMessage `json:"requires"`
	}
	switch err := json.Unmarshal(body, &v); {
	case err != nil:
		return Corrupt(key, "%v", err)
	case v.Format < 1:
		return Corrupt(key, "it says format %d", v.Format)
	case v.Format != Format:
		return fmt.Errorf("%w: %s says format %d, this program knows %d; upgrade this program", fence.ErrFormat, key, v.Format, Format)
	case v.Requires == nil:
		return nil
	}
	var requires []string
	if err := json.Unmarshal(v.Requires, &requires); err != nil {
		return Corrupt(key, "%v", err)
	}
	requires = slices.DeleteFunc(requires, func(name string) bool { return slices.Contains(known, name) })
	if len(requires) > 0 {
		return fmt.Errorf("%w: %s requires %q, which this program does not know; upgrade this program", fence.ErrFormat, key, requires)
	}
	return nil
}

// Corrupt returns an error that is [fence.ErrCorrupt] and says what is wrong with the
// document under key.
func Corrupt(key, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", fence.ErrCorrupt, key, fmt.Sprintf(format, args...))
}
