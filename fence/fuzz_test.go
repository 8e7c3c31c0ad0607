package fence

import (
	"strings"
	"testing"
)

// An ID's text is its digits, in either case.
func FuzzID(f *testing.F) {
	f.Add(testID.String())
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		var id ID
		if id.UnmarshalText([]byte(text)) == nil && id.String() != strings.ToLower(text) {
			t.Errorf("%q is read as %v", text, id)
		}
	})
}
