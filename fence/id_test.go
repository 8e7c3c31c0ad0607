package fence

import (
	"encoding/json"
	"testing"

	"github.com/fencepost/fencepost/internal/test/fixture"
)

func TestIDText(t *testing.T) {
	b, err := json.Marshal(map[string]ID{"log": testID})
	if err != nil || string(b) != `{"log":"101112131415161718191a1b1c1d1e1f"}` {
		t.Fatalf("%s, %v", b, err)
	}
	var back map[string]ID
	if err := json.Unmarshal(b, &back); err != nil || back["log"] != testID {
		t.Errorf("%v, %v", back, err)
	}
	for text, want := range map[string]string{
		"":                                  "32 hexadecimal digits, not 0",
		"101112131415161718191a1b1c1d1e1":   "32 hexadecimal digits, not 31",
		"101112131415161718191a1b1c1d1e1f2": "32 hexadecimal digits, not 33",
		"101112131415161718191a1b1c1d1e1g":  "invalid byte",
	} {
		id := testNonce
		fixture.WantErr(t, id.UnmarshalText([]byte(text)), ErrCorrupt, want)
		if id != testNonce {
			t.Errorf("%q changed the id to %v", text, id)
		}
	}
}
