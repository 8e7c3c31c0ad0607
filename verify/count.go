package verify

import (
	"context"
	"strings"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
)

// Kinds of objects, by their names.
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
	KindTmp           = "tmp"
	// KindUnknown are objects that no log has.
	KindUnknown = "unknown"
)

// Kinds lists them in the order in which people want to read them.
var Kinds = []string{
	KindFormat, KindLock, KindCompactorLock, KindManifest, KindData, KindSegment, KindList, KindPin, KindFile, KindTmp, KindUnknown,
}

// Count is a number of objects and the sum of their sizes.
type Count struct {
	Objects int   `json:"objects"`
	Bytes   int64 `json:"bytes"`
}

func (c Count) and(size int64) Count { return Count{c.Objects + 1, c.Bytes + size} }

// Objects counts objects by kind.
type Objects map[string]Count

// KindOf tells what an object of a log is, by its key.
func KindOf(key string) string {
	dir, rest, ok := strings.Cut(key, "/")
	if !ok {
		if key == layout.FormatKey {
			return KindFormat
		}
		return KindUnknown
	}
	switch dir {
	case KindLock, KindCompactorLock:
		if number, ok := strings.CutSuffix(rest, ".json"); !ok || !isNumber(number) {
			return KindUnknown
		}
	case KindData:
		if _, ok := layout.ParseDataKey(key); !ok {
			return KindUnknown
		}
	case KindManifest:
		if _, ok := layout.ParseManifestKey(key); !ok {
			return KindUnknown
		}
	case KindSegment:
		if _, _, ok := layout.ParseSegmentKey(key); !ok {
			return KindUnknown
		}
	case KindList:
		if _, _, ok := layout.ParseListKey(key); !ok {
			return KindUnknown
		}
	case KindPin:
		if _, ok := layout.ParsePinKey(key); !ok {
			return KindUnknown
		}
	case KindFile:
		if _, _, _, ok := layout.ParseFileKey(key); !ok {
			return KindUnknown
		}
	case KindTmp:
	default:
		return KindUnknown
	}
	return dir
}

func isNumber(s string) bool {
	_, ok := layout.ParseNumber(s)
	return ok
}

// Tally counts the objects of the log in st by listing them all. Visit, if not
// nil, is called with each. A listing that breaks off begins again, and then
// objects may be visited and counted twice.
func Tally(ctx context.Context, st store.Store, settle *store.SettleOptions, visit func(kind string, info store.Info)) (Objects, error) {
	counts := Objects{}
	for info, err := range store.ListAll(ctx, st, "", nil, settle) {
		if err != nil {
			return nil, err
		}
		kind := KindOf(info.Key)
		counts[kind] = counts[kind].and(info.Size)
		if visit != nil {
			visit(kind, info)
		}
	}
	return counts, nil
}
