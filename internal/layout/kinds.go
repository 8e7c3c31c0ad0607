package layout

import "strings"

// The kinds of objects in a log. But for that of the format, a kind is also the first
// part of its keys.
const (
	KindFormat        = "format"
	KindLock          = "lock"
	KindCompactorLock = "compactor-lock"
	KindData          = "data"
	KindManifest      = "manifest"
	KindSegment       = "segment"
	KindList          = "list"
	KindPin           = "pin"
	KindFile          = "file"
	KindConsumer      = "consumer"
	KindTmp           = "tmp"
	// KindUnknown is for objects that belong to no log.
	KindUnknown = "unknown"
)

// Kinds lists them in the order in which people want to read them.
func Kinds() []string {
	return []string{
		KindFormat, KindLock, KindCompactorLock, KindManifest, KindData, KindSegment, KindList, KindPin, KindFile, KindConsumer, KindTmp, KindUnknown,
	}
}

// KindOf returns the kind of an object by its key.
func KindOf(key string) string {
	if key == FormatKey {
		return KindFormat
	}
	dir, _, _ := strings.Cut(key, "/")
	ok := false
	switch dir {
	case KindLock, KindCompactorLock:
		_, ok = ParseLockKey(dir+"/", key)
		ok = ok || key == CandidateKey(dir+"/")
	case KindData:
		_, ok = ParseDataKey(key)
	case KindManifest:
		_, ok = ParseManifestKey(key)
	case KindSegment:
		_, _, ok = ParseSegmentKey(key)
	case KindList:
		_, _, ok = ParseListKey(key)
	case KindPin:
		_, ok = ParsePinKey(key)
	case KindFile:
		_, _, _, ok = ParseFileKey(key)
		ok = ok || strings.HasPrefix(key, DeltaPrefix) || strings.HasPrefix(key, IcebergPrefix)
	case KindConsumer:
		_, ok = ParseConsumerKey(key)
	case KindTmp:
		ok = strings.Contains(key, "/")
	}
	if !ok {
		return KindUnknown
	}
	return dir
}
