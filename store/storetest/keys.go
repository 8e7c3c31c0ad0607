package storetest

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/fencepost/fencepost/store"
)

// odd are keys that some store, client or file system changes on the way. They all exist at
// once, and none may be taken for another.
var odd = []string{
	"space in it", " before", "behind ", "two  spaces",
	"plus+plus", "a b", "a+b", "a%20b", "a%2Fb", "a%2fb", "a/b", "100%", "100%25", "%", "%%", "%00",
	"and&and", "eq=ual", "question?mark", "hash#tag", "semi;colon", "colon:colon", "at@at", "dollar$1",
	"star*", "bang!", "comma,comma", "(round)", "[square]", "{curly}", "<angle>", "pipe|pipe", "caret^", "tilde~", "~",
	`double"quote`, "single'quote", "back`tick", `"`, "&amp;", "?x-id=1", "--", "-rf",
	"con", "nul.txt", "aux/prn", "com1", "dot.", ".hidden", "..two", "in..side", "...", "a.b/.c/..d/e..",
	"größe", "日本語/キー", "🦊/🪵", "e\u0301", "\u00a0", "\u200b", "\u2028", "ÅNGSTRÖM", "UPPER/lower",
	"index.html", "favicon.ico", "data.json.gz", "lock/00000000000000000001.json", "x.tmp",
}

// oddKeys: every valid key can be used, is no other key, and is listed as it is.
func oddKeys(s *suite) {
	const room = 100 // for a prefix of the clients themselves
	keys := append([]string{
		strings.Repeat("n", 200),
		strings.Repeat("é", 100),
		strings.TrimSuffix(strings.Repeat("d/", 40), "/"),
		fill(store.MaxKey - len(s.prefix) - 1 - room),
	}, odd...)
	want := map[string]store.Info{}
	for i, key := range keys {
		info, err := s.client(i).Put(s.Context(), key, []byte(key), &store.PutOptions{If: store.IfAbsent()})
		if err != nil {
			s.Errorf("Put(%q): %v", key, err)
			continue
		}
		s.checkInfo("Put", info, key, int64(len(key)))
		want[key] = info
	}
	s.wantListed(s.st(), "", want)
	for key, info := range want {
		body, got, err := s.read(s.client(1), key, nil)
		if err != nil || !bytes.Equal(body, []byte(key)) || got.Version != info.Version {
			s.Errorf("Get(%q): %q, version %q, %v", key, body, got.Version, err)
		}
		if dir, _, ok := strings.Cut(key, "/"); ok {
			if _, listed := s.list(s.client(2), dir+"/", nil)[key]; !listed {
				s.Errorf("List(%q) lacks %q", dir+"/", key)
			}
		}
		if _, err := s.st().Put(s.Context(), key, newBody(20), &store.PutOptions{If: store.IfMatch(info.Version)}); err != nil {
			s.Errorf("swap of %q: %v", key, err)
		}
	}
	for key := range want {
		if err := s.client(2).Delete(s.Context(), key); err != nil {
			s.Errorf("Delete(%q): %v", key, err)
		}
		s.wantAbsent(s.client(3), key)
	}
	s.wantListed(s.st(), "", nil)
}

// fill returns a key of n bytes in parts of at most 100.
func fill(n int) string {
	key := strings.Repeat(strings.Repeat("l", 99)+"/", n/100+1)[:n]
	if strings.HasSuffix(key, "/") {
		key = key[:n-1] + "x"
	}
	return key
}

// badKeys: every method returns an error for a key that store.CheckKey does not accept.
func badKeys(s *suite) {
	bad := []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "./a", "../a", "a/.", "a/..", "a/../b", "a/./b",
		`a\b`, "a\x00b", "a\nb", "a\tb", "\x7f", "\xff\xfe", strings.Repeat("x/", store.MaxKey/2) + "y",
	}
	st := s.raw[0]
	for _, tail := range bad {
		key := s.prefix + "/" + tail
		if tail == "" {
			key = ""
		}
		_, err := st.Get(s.Context(), key, nil)
		s.wantError(fmt.Sprintf("Get(%q)", key), err, store.ErrInvalid)
		for _, cond := range []store.Condition{{}, store.IfAbsent(), store.IfMatch("v")} {
			_, err = st.Put(s.Context(), key, newBody(10), &store.PutOptions{If: cond})
			s.wantError(fmt.Sprintf("Put(%q, %v)", key, cond), err, store.ErrInvalid)
		}
		_, err = st.Upload(s.Context(), key, bytes.NewReader(newBody(10)), nil)
		s.wantError(fmt.Sprintf("Upload(%q)", key), err, store.ErrInvalid)
		s.wantError(fmt.Sprintf("Delete(%q)", key), st.Delete(s.Context(), key), store.ErrInvalid)
		s.wantError(fmt.Sprintf("Delete of a good key and %q", key), st.Delete(s.Context(), s.prefix+"/good", key), store.ErrInvalid)
	}
	s.wantListed(s.st(), "", nil)
}
