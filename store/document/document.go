package document

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"path"
	"slices"
	"unicode/utf8"

	"github.com/fencepost/fencepost/fence"
)

// Encode returns v as the document that stands under a key, with its checksum. v has at
// least one member.
func Encode(key string, v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", key, err)
	}
	return Sum(key, Lines(b)), nil
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
	// guard:document-sum. A document ends with a checksum of the last part of its key and of all bytes
	// before the checksum. A document that does not fit its checksum is damaged. Without this check:
	// the first empty slot is 24; a disk flips one bit in a manifest, and its hint says slot 26 instead
	// of 22; an opener begins at slot 26, takes it for the tail, and acknowledges appends after it;
	// readers stop at the empty slot 24.
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
	if err := Unmarshal(body, v); err != nil {
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

// Lines breaks compact JSON into lines that people can read: one for each member, and one
// for each element of a list. Indented to the last level, a manifest with many segments
// would be twice as long.
func Lines(b []byte) []byte {
	out := make([]byte, 0, len(b)+len(b)/32+64)
	var open []byte // the brackets around this place
	breaks := func() bool { return len(open) == 1 || len(open) == 2 && open[1] == '[' }
	newline := func() {
		out = append(out, '\n')
		for range open {
			out = append(out, ' ')
		}
	}
	for i, quoted := 0, false; i < len(b); i++ {
		c := b[i]
		switch {
		case quoted:
			out = append(out, c)
			if c == '\\' {
				i++
				out = append(out, b[i])
			}
			quoted = c != '"'
		case c == '{' || c == '[':
			out, open = append(out, c), append(open, c)
			if breaks() {
				newline()
			}
		case c == '}' || c == ']':
			broken := breaks()
			open = open[:len(open)-1]
			if broken {
				newline()
			}
			out = append(out, c)
		default:
			out = append(out, c)
			quoted = c == '"'
			if c == ',' && breaks() {
				newline()
			} else if c == ':' && len(open) == 1 {
				out = append(out, ' ')
			}
		}
	}
	return append(out, '\n')
}

// MaxElements is how many elements all lists of a document of size bytes may have
// together. Every entry that this project writes takes at least twice as many bytes.
func MaxElements(size int) int { return 64 + size/32 }

// elements counts the commas between the elements of lists.
func elements(b []byte) int {
	n := 0
	var open []byte // the brackets around this place
	for i := 0; i < len(b); i++ {
		switch c := b[i]; c {
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			open = append(open, c)
		case '}', ']':
			if len(open) > 0 {
				open = open[:len(open)-1]
			}
		case ',':
			if len(open) > 0 && open[len(open)-1] == '[' {
				n++
			}
		}
	}
	return n
}

// Unmarshal reads JSON that this project has written, such as an edit, which has its checksum
// elsewhere.
func Unmarshal(body []byte, v any) error {
	// guard:elements. Before a JSON document is decoded, the elements of its lists are counted. A
	// document with more than 64 elements, and one for every 32 bytes, is refused. Without this
	// check: somebody stores a manifest with a right checksum, whose list of segments is 8 MiB of
	// "null,"; each process that reads it makes 1.7 million empty segments, and allocates about a
	// gigabyte.
	if n := elements(body); n > MaxElements(len(body)) {
		return fmt.Errorf("%d elements in %d bytes", n, len(body))
	}
	return json.Unmarshal(body, v)
}

// TextLen is an upper bound of the bytes that a text takes in JSON, with quotes and comma.
func TextLen(s string) int {
	n := len(s) + len(`"",`)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c < ' ', c == '"', c == '\\', c == '<', c == '>', c == '&', c == utf8.RuneSelf-1:
			n += len(`\u0000`) - 1
		case c == 0xe2: // U+2028 and U+2029 are among those that begin so
			n += len(`\u2028`) - 3
		}
	}
	return n
}

// Corrupt returns an error that is [fence.ErrCorrupt] and says what is wrong with the
// document under key.
func Corrupt(key, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", fence.ErrCorrupt, key, fmt.Sprintf(format, args...))
}

// Format is the format of all documents that this program writes, and the only
// one that it reads.
const Format = 1

// CheckTexts returns an error if JSON could not return texts unchanged, or if they take
// more than limit bytes. What names them in the error.
func CheckTexts(what string, texts map[string]string, limit int) error {
	for name, value := range texts {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return fmt.Errorf("manifest: %s %q is not UTF-8; encode binary values, with base64 for example", what, name)
		}
	}
	if n := TextsLen(texts); n > limit {
		return fmt.Errorf("%w: %s have %d bytes; at most %d are possible: put more into an object, and its key here", fence.ErrLimit, what, n, limit)
	}
	return nil
}

// TextsLen is about how many bytes texts take in JSON.
func TextsLen(texts map[string]string) int {
	n := 0
	for name, value := range texts {
		n += TextLen(name) + TextLen(value)
	}
	return n
}
