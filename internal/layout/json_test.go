package layout

import (
	"encoding/json"
	"strings"
	"testing"
)

// TextLen bounds what JSON makes of a text: with it manifests are kept below
// their limit.
func TestTextLen(t *testing.T) {
	for c := range rune(0x3000) {
		s := strings.Repeat(string(c), 10)
		b, err := json.Marshal(s)
		if got, least := TextLen(s), len(b)+1; err != nil || got < least {
			t.Errorf("%U: %d, but it takes %d", c, got, least)
		}
	}
}
