package store

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxKey is the length of the longest key, in bytes (S3's limit).
const MaxKey = 1024

// CheckKey returns an [ErrInvalid] unless key can be used on every store. Drivers call it
// before anything is sent; op is the [Error].Op.
//
// A key has 1 to [MaxKey] bytes of UTF-8. Its parts between slashes are neither empty nor
// "." nor "..". It has no control characters, backslashes, U+FFFE or U+FFFF; listings in
// XML cannot carry these.
func CheckKey(op, key string) error {
	bad := func(why string) error {
		return &Error{Op: op, Key: key, Kind: ErrInvalid, Hint: why}
	}
	switch {
	case key == "":
		return bad("a key must not be empty")
	case len(key) > MaxKey:
		return bad(fmt.Sprintf("a key has at most %d bytes, this one has %d", MaxKey, len(key)))
	case !utf8.ValidString(key):
		return bad("a key must be valid UTF-8")
	}
	for _, r := range key {
		if unicode.IsControl(r) || r == '\\' || r == 0xfffe || r == 0xffff {
			return bad(fmt.Sprintf("a key must not contain %q", r))
		}
	}
	for part := range strings.SplitSeq(key, "/") {
		if part == "" || part == "." || part == ".." {
			return bad(`the parts of a key between slashes must not be empty, "." or ".."`)
		}
	}
	return nil
}

// CheckPrefix returns an [ErrInvalid] unless prefix is empty or a valid key followed by
// "/".
func CheckPrefix(op, prefix string) error {
	if prefix == "" {
		return nil
	}
	rest, ok := strings.CutSuffix(prefix, "/")
	if !ok {
		return &Error{Op: op, Key: prefix, Kind: ErrInvalid, Hint: `a prefix is empty or ends in "/"`}
	}
	return CheckKey(op, rest)
}
