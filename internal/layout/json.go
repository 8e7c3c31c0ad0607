package layout

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/fencepost/fencepost/fence"
)

// This file has the shape of all JSON in a log: how it is broken into lines, and how large its parts may be.

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

// Unmarshal reads JSON that this project has written. Documents are decoded by it, and edits, which have their
// checksum elsewhere.
func Unmarshal(body []byte, v any) error {
	// guard:elements. A JSON document is refused before it is decoded if its lists have more than 64
	// elements, and one for every 32 bytes.
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
