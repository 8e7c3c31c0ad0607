package dirstore

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/fencepost/fencepost/store"
)

const (
	// reserved is the top-level folder that belongs to this package.
	reserved = ".fencepost"
	tempDir  = reserved + "/tmp"
	lockDir  = reserved + "/lock"
	// maxName is the longest file name that every file system takes, in bytes.
	maxName = 255
)

var reservedDirs = []string{reserved, tempDir, lockDir}

// reservedLike reports whether a top-level part is the reserved name, with any number of
// escapes after it. It ignores case, because the file system may.
func reservedLike(part string) bool {
	return strings.EqualFold(strings.TrimRight(part, "%"), reserved)
}

// relPath maps a key to its path below the root. Unix file systems take every name that
// [store.CheckKey] accepts. So only the reserved name is escaped: its part gets one more
// "%", which keyOf removes.
func relPath(op, key string) (string, error) {
	if err := store.CheckKey(op, key); err != nil {
		return "", err
	}
	return escape(op, key)
}

// relDir is relPath for a prefix. The empty prefix is the root.
func relDir(op, prefix string) (string, error) {
	if err := store.CheckPrefix(op, prefix); err != nil {
		return "", err
	}
	if prefix == "" {
		return ".", nil
	}
	return escape(op, strings.TrimSuffix(prefix, "/"))
}

func escape(op, key string) (string, error) {
	parts := strings.Split(key, "/")
	if reservedLike(parts[0]) {
		parts[0] += "%"
	}
	for _, part := range parts {
		if len(part) > maxName {
			return "", &store.Error{Op: op, Key: key, Kind: store.ErrInvalid,
				Hint: fmt.Sprintf("a part of a key between slashes has at most %d bytes in a directory, %.20q… has %d", maxName, part, len(part))}
		}
	}
	return filepath.Join(parts...), nil
}

// keyOf is the inverse of relPath. It is false for paths that no key maps to.
func keyOf(rel string) (string, bool) {
	key := filepath.ToSlash(rel)
	top, rest, deep := strings.Cut(key, "/")
	if reservedLike(top) {
		cut, escaped := strings.CutSuffix(top, "%")
		if !escaped {
			return "", false
		}
		key = cut
		if deep {
			key += "/" + rest
		}
	}
	return key, store.CheckKey("list", key) == nil
}
