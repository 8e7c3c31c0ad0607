package inspect

import (
	"strings"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
)

// Kind says what an object of a log is. It is also the folder in which the log keeps such objects, but for
// [Format] and [Unknown].
type Kind string

// The kinds of objects, as docs/format.md describes them.
const (
	Format        Kind = layout.KindFormat // format.json, which says what the log is
	Lock          Kind = layout.KindLock
	CompactorLock Kind = layout.KindCompactorLock
	Manifest      Kind = layout.KindManifest
	Data          Kind = layout.KindData
	Segment       Kind = layout.KindSegment
	List          Kind = layout.KindList
	Pin           Kind = layout.KindPin
	File          Kind = layout.KindFile
	Consumer      Kind = layout.KindConsumer
	Tmp           Kind = layout.KindTmp // of a probe, for a moment
	// Unknown is what belongs to no log.
	Unknown Kind = layout.KindUnknown
)

// Kinds returns all kinds, in the order in which people want to read them.
func Kinds() (all []Kind) {
	for _, k := range layout.Kinds() {
		all = append(all, Kind(k))
	}
	return all
}

// Prefix is what the keys of all objects of a kind begin with: its folder with a slash, such as "data/". Of
// [Format] it is the one key, and of [Unknown] it is empty.
func (k Kind) Prefix() string {
	switch k {
	case Format:
		return layout.FormatKey
	case Unknown:
		return ""
	}
	return string(k) + "/"
}

// Name is a key of a log in its parts.
type Name struct {
	Kind Kind
	// Number is the version of a [Manifest], or the epoch of a [Lock] or a [CompactorLock]. Both begin at 1. A
	// lock with 0 is the note that candidates leave for a leader.
	Number uint64
	// Slot is the place of a [Data] object in the log.
	Slot fence.Position
	// ID is that of a [Pin], or the name of a [Consumer]. Of other kinds it is what follows the prefix.
	ID string
}

const (
	json = ".json"
	note = "candidate" // see layout.CandidateKey
)

// Parse takes a key apart. A key that no log gives to an object is [Unknown], with all of it as ID. So what
// follows is true for every key: Parse(key).Key() == key.
func Parse(key string) Name {
	n := Name{Kind: Kind(layout.KindOf(key))}
	id := strings.TrimPrefix(key, n.Kind.Prefix())
	switch n.Kind {
	case Format:
	case Lock, CompactorLock, Manifest:
		n.Number, _ = layout.ParseNumberedKey(n.Kind.Prefix(), key)
	case Data:
		n.Slot, _ = layout.ParseDataKey(key)
	case Pin, Consumer:
		n.ID = strings.TrimSuffix(id, json)
	default:
		n.ID = id
	}
	return n
}

// Key puts the parts together. It checks nothing.
func (n Name) Key() string {
	switch prefix := n.Kind.Prefix(); n.Kind {
	case Format:
		return prefix
	case Lock, CompactorLock, Manifest:
		if n.Number == 0 {
			return prefix + note + json
		}
		return layout.NumberedKey(prefix, n.Number)
	case Data:
		return layout.DataKey(n.Slot)
	case Pin, Consumer:
		return prefix + n.ID + json
	default:
		return prefix + n.ID
	}
}
