package writer

import "testing"

// The tail is long after so many objects or so many bytes, and says so once.
func TestTail(t *testing.T) {
	for _, c := range []struct{ stored, at int }{{1, tailObjects}, {tailBytes / 4, 4}, {tailBytes + 1, 1}} {
		var due []int
		var tl tail
		for i := range tailObjects + 10 {
			if tl.grow(&batch{stored: c.stored}) {
				due = append(due, i+1)
			}
		}
		if len(due) != 1 || due[0] != c.at {
			t.Errorf("with %d bytes each a checkpoint was due after %v objects, want %d", c.stored, due, c.at)
		}
	}
}
