package manifest

import (
	"encoding/json"
	"fmt"

	"github.com/fencepost/fencepost/fence"
)

func (m *Manifest) encode(limit int) ([]byte, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	b = lines(b)
	if len(b) > limit {
		return nil, fmt.Errorf("%w: manifest %d would have %d bytes; the log allows %d", fence.ErrLimit, m.Version, len(b), limit)
	}
	return b, nil
}

// lines breaks compact JSON so that people can read it: a line for each member,
// and for each element of a list. Indented all the way, a manifest of many
// segments would be twice as long and no table.
func lines(b []byte) []byte {
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

// maxElements is how many elements all lists of a document of so many bytes may
// have. No entry of ours is shorter than twice that.
func maxElements(size int) int { return 64 + size/32 }

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

// unmarshal reads a document that a program of ours has written.
func unmarshal(body []byte, v any) error {
	// guard:elements. Before anything is allocated: 8 MiB of nothing but "null," would become more
	// than a gigabyte of empty segments.
	if n := elements(body); n > maxElements(len(body)) {
		return fmt.Errorf("%d elements in %d bytes", n, len(body))
	}
	return json.Unmarshal(body, v)
}

// decode reads a manifest and checks that it hangs together.
func decode(key string, body []byte, f Format) (*Manifest, error) {
	m := &Manifest{}
	err := unmarshal(body, m)
	if err := readable(key, body, m.Format, m.Requires, err); err != nil {
		return nil, err
	}
	if err := m.check(key, f); err != nil {
		return nil, err
	}
	return m, nil
}
