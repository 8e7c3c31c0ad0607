package layout

import (
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/fence"
)

const (
	// BackupKey is the object of a backup that says how far it is.
	BackupKey = "backup.json"
	// Groups keep their own objects in groupDir, the logs of their partitions in partitionsDir, and what their compactors
	// share in compactorsDir.
	groupDir, partitionsDir, compactorsDir = "group", "partition", "compactors"
)

// deltaDir is the folder of a Delta table's log, in any place.
var deltaDir = strings.TrimPrefix(DeltaPrefix, FilePrefix)

// Pass is what a store shows that this module uses for a register among a log's own names. No other module can
// name the type.
type Pass struct{}

// Own is implemented by such a store.
type Own interface{ OpensOwn(Pass) }

// part reports whether one part of a key, between slashes, is like a part of an own key.
type part func(string) bool

func is(names ...string) part { return func(s string) bool { return slices.Contains(names, s) } }

func anything(string) bool { return true }

func number(s string) bool { _, ok := ParseNumber(s); return ok }

// document matches the name of a document that is called by its number, a UUID or an ID.
func document(of part) part {
	return func(s string) bool { name, ok := strings.CutSuffix(s, ".json"); return ok && of(name) }
}

func identity(s string) bool { var id fence.ID; return id.UnmarshalText([]byte(s)) == nil }

func fileName(s string) bool {
	return len(s) >= 36 && uuid.Validate(s[:36]) == nil
}

// icebergName matches what an Iceberg table has in its folder.
func icebergName(s string) bool {
	return s == "version-hint.text" || strings.HasSuffix(s, ".metadata.json") || strings.HasSuffix(s, ".avro")
}

func dir(prefix string) part { return is(strings.TrimSuffix(prefix, "/")) }

func partition(s string) bool {
	return len(s) == 6 && strings.Trim(s, "0123456789") == ""
}

// pattern is how an own key looks, part by part. A key collides with it if the parts that both have are alike: then it
// is such a key, a folder of one, or lies below one.
type pattern struct {
	parts []part
	// least is how many parts a key must have of it. It spares names that people give to other things.
	least int
	// folder says that what is called so is only ever a folder: what lies below one does not collide.
	folder bool
}

// own are the keys of logs, backups, groups and stores for files.
var own = func() (all []pattern) {
	add := func(parts ...part) { all = append(all, pattern{parts: parts, least: 1}) }
	role, candidate := is(string(Writer), string(Compactor)), CandidateKey("")
	for _, kind := range Kinds() {
		switch kind {
		case KindFormat:
			add(is(FormatKey))
		case KindLock, KindCompactorLock:
			add(is(kind), func(s string) bool { return s == candidate || document(number)(s) })
		case KindData:
			add(is(kind), number, number)
		case KindManifest:
			add(is(kind), document(number))
		case KindSegment, KindList:
			add(is(kind), role, number, isUUID)
		case KindPin:
			add(is(kind), document(isUUID))
		case KindFile:
			add(is(kind), number, fileName)
		case KindConsumer:
			add(is(kind), document(consumerName.MatchString))
		case KindTmp:
			add(is(kind), isUUID)
		}
	}
	add(is(BackupKey))
	add(is(groupDir), document(is("group", "head")))
	add(is(groupDir), is("member"), document(identity))
	add(is(groupDir), is("assign"), number)
	add(is(groupDir), is("call", "ready", "ack"), identity, anything)
	add(is(groupDir), is("ack"), identity, number, anything)
	for _, parts := range [][]part{{is(partitionsDir), partition}, {is(compactorsDir)}} {
		all = append(all, pattern{parts: parts, least: 1, folder: true})
	}
	// In a second store for files, or in any other place to which a table is published.
	add(dir(deltaDir), anything)
	all = append(all, pattern{parts: []part{dir(strings.TrimPrefix(IcebergPrefix, FilePrefix)), icebergName}, least: 2})
	all = append(all, pattern{parts: []part{identity, number, fileName}, least: 2})
	add(is(SharedDir), document(identity))
	add(is(SharedDir), is(KindTmp), isUUID)
	return all
}()

// names are the first parts of the keys of logs, backups, groups and stores for files.
var names = func() []string {
	all := []string{
		FormatKey, BackupKey, groupDir, partitionsDir, compactorsDir, SharedDir,
		strings.TrimSuffix(deltaDir, "/"),
	}
	return append(all, Folders()...)
}()

// Folders are the folders in which a log keeps its objects.
func Folders() []string {
	return slices.DeleteFunc(Kinds(), func(kind string) bool { return kind == KindFormat || kind == KindUnknown })
}

// dirReserved is the folder in which a store in a directory keeps what is its own.
const dirReserved = ".fencepost"

// reserved reports whether a part of a key is that folder, or escaped from being it.
func reserved(s string) bool { return strings.TrimRight(s, "%") == dirReserved }

// Owned returns which part of a key belongs to a log, a backup, a group or a store for files, empty if none does. Place is
// what the store calls itself ([store.Traits].Name): a store may be opened within a log, and a log may lie below any
// folder of a key. The place alone is never a reason: a folder of any name can have a log or a register.
//
// guard:own-names. A register or an election uses no key that can be an object of a log, no folder of
// such a key, and nothing below one.
//
//mutant:replace collides(place, key, own) => ""
func Owned(place, key string) string {
	if what := firstOf(key); what != "" && !ofLease(key) {
		return what
	}
	return collides(place, key, own)
}

// firstOf returns the first part of a key if a log, a backup, a group or a store for files has one that is called so.
func firstOf(key string) string {
	first, _, _ := strings.Cut(strings.ToLower(key), "/")
	if slices.Contains(names, first) {
		return first
	}
	return ""
}

// ofLease reports whether a key is that of a lock for Kubernetes, in a namespace that may be called like a folder of a log.
// Nothing of a log is called so but positions of consumers.
func ofLease(key string) bool {
	return strings.HasSuffix(key, ".lease.json") || strings.HasSuffix(key, ".epoch.json")
}

// OwnedElection is Owned for an election whose keys begin with prefix. The locks of a log are an election's. It asks for no
// place: whoever only reads who leads must be told wherever the log is, and only lock/ and compactor-lock/ begin the keys there.
func OwnedElection(prefix string) string {
	if what := firstOf(prefix); what != "" && prefix != LockPrefix && prefix != CompactorLockPrefix {
		return what
	}
	for _, key := range []string{NumberedKey(prefix, 1), CandidateKey(prefix)} {
		if what := collides("", key, foreign); what != "" {
			return what
		}
	}
	return ""
}

// foreign are the own keys without those of elections.
var foreign = slices.DeleteFunc(slices.Clone(own), func(p pattern) bool { return p.parts[0](KindLock) || p.parts[0](KindCompactorLock) })

// collides returns the first part of an own key with which some end of place and key collides.
func collides(place, key string, own []pattern) string {
	_, folders, _ := strings.Cut(strings.ToLower(place), "://") // own names need no escapes, so those in it do not matter
	above := strings.FieldsFunc(folders, func(r rune) bool { return r == '/' })
	parts := strings.Split(strings.ToLower(key), "/") // a file system may ignore case
	if slices.ContainsFunc(parts, reserved) {
		return dirReserved
	}
	all := slices.Concat(above, parts)
	for from := range all {
		for _, p := range own {
			left := len(all) - from
			n := min(len(p.parts), left)
			// A store's place is a folder, so no object ends within it.
			if len(above)-from >= n || n < p.least || p.folder && left > n {
				continue
			}
			alike := true
			for i, part := range p.parts[:n] {
				alike = alike && part(all[from+i])
			}
			if alike {
				return all[from]
			}
		}
	}
	return ""
}
