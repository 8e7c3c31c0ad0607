package session

import (
	"reflect"
	"testing"
)

// What quick decodes, it decodes as decode does.
func FuzzQuick(f *testing.F) {
	for _, line := range []string{
		`{"text":"a"}`, `{"text":"","cursor":""}`, `{"text":"ä😀","cursor":"7"}` + "\n", `{"text":"a\n"}`, "{\"text\":\"a\tb\"}", "{\"text\":\"\xff\"}",
		`{"text":"a","cursor":"7"}}`, `{"text":"a","cursor":"7","flush":true}`, `{"text":"a"`, `{"text":"a","cursor":"7`, `{"text":"\ud800"}`, `{"text":"a"}{}`, "{\"text\":\"\x7f\"}",
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		m, ok := quick(line)
		if !ok {
			return
		}
		if want, err := decode(line); err != nil || !reflect.DeepEqual(m, want) {
			t.Errorf("%q: %+v, and not %+v, %v", line, m, want, err)
		}
	})
}
