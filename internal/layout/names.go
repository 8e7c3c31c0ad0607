package layout

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/fence"
)

// ManifestPrefix begins the keys of all manifests.
const ManifestPrefix = "manifest/"

// SegmentPrefix begins the keys of all segments.
const SegmentPrefix = "segment/"

const (
	// ListPrefix begins the keys of all pages.
	ListPrefix = "list/"
	// FilePrefix begins the keys of all files.
	FilePrefix = "file/"
	// DeltaPrefix begins the keys of the log of a Delta table, which other programs read too.
	DeltaPrefix = FilePrefix + "_delta_log/"
	// IcebergPrefix begins the keys of an Iceberg table, which other programs read too.
	IcebergPrefix = FilePrefix + "metadata/"
	// DeltaHintKey is the object there that names the newest checkpoint.
	DeltaHintKey = DeltaPrefix + "_last_checkpoint"
	// PinPrefix begins the keys of all pins.
	PinPrefix = "pin/"
	// LockPrefix begins the keys of the locks of the log's leaders.
	LockPrefix = "lock/"
	// CompactorLockPrefix begins the keys of the locks of its compactors.
	CompactorLockPrefix = "compactor-lock/"
	// ConsumerPrefix begins the keys of the positions of consumers.
	ConsumerPrefix = "consumer/"
	// TmpPrefix begins the keys of what probes write for a moment.
	TmpPrefix = "tmp/"
)

// DeltaCommitKey names a version of the Delta table: file/_delta_log/<version>.json.
func DeltaCommitKey(version int64) string {
	return DeltaPrefix + FormatNumber(uint64(version)) + ".json"
}

// ParseDeltaCommitKey reads what [DeltaCommitKey] writes, and nothing else.
func ParseDeltaCommitKey(key string) (version int64, ok bool) {
	rest, below := strings.CutPrefix(key, DeltaPrefix)
	number, json := strings.CutSuffix(rest, ".json")
	n, ok := ParseNumber(number)
	return int64(n), ok && below && json && int64(n) >= 0
}

// NumberedKey names an object by its number: <prefix><number>.json.
func NumberedKey(prefix string, n uint64) string { return prefix + FormatNumber(n) + ".json" }

// ParseNumberedKey reads what [NumberedKey] writes. Numbers begin at 1.
func ParseNumberedKey(prefix, key string) (n uint64, ok bool) {
	rest, below := strings.CutPrefix(key, prefix)
	number, json := strings.CutSuffix(rest, ".json")
	n, ok = ParseNumber(number)
	return n, ok && below && json && n > 0
}

// MaxMinEpoch is the greatest epoch to which an election may skip. An election that counts on from
// there, a thousand times a second, comes to [fence.MaxEpoch] after 34 years.
const MaxMinEpoch fence.Epoch = 1 << 62

// LockKey names the lock of an epoch.
func LockKey(prefix string, epoch fence.Epoch) string { return NumberedKey(prefix, uint64(epoch)) }

// ParseLockKey reads what [LockKey] writes. It reports false for a number that no election comes to.
func ParseLockKey(prefix, key string) (epoch fence.Epoch, ok bool) {
	n, ok := ParseNumberedKey(prefix, key)
	epoch = fence.Epoch(n)
	// guard:great-epoch. An object whose number is above MaxEpoch, which is 2⁶² + 2⁴⁰, does not count
	// as a lock.
	//
	//mutant:replace epoch <= fence.MaxEpoch => true
	return epoch, ok && epoch <= fence.MaxEpoch
}

// consumerName is a name that every store takes in a key.
var consumerName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// MaxName is how long the longest key of a log is: that of a consumer. MaxFile is that of a file, after "file".
const (
	MaxName = len(ConsumerPrefix) + 100 + len(".json")
	uuidLen = 36
	MaxFile = len("/") + Digits + len("/") + uuidLen + MaxExt
)

// ConsumerKey names the position of a consumer: consumer/<name>.json. It reports false if the
// name cannot be part of a key.
func ConsumerKey(name string) (key string, ok bool) {
	return ConsumerPrefix + name + ".json", consumerName.MatchString(name)
}

// ParseConsumerKey reads what [ConsumerKey] writes.
func ParseConsumerKey(key string) (name string, ok bool) {
	rest, below := strings.CutPrefix(key, ConsumerPrefix)
	name, json := strings.CutSuffix(rest, ".json")
	return name, below && json && consumerName.MatchString(name)
}

// CandidateKey names the note that candidates leave for the leader of an election.
func CandidateKey(prefix string) string { return prefix + "candidate.json" }

// ManifestKey is the key of a version of the manifest.
func ManifestKey(version uint64) string { return NumberedKey(ManifestPrefix, version) }

// ParseManifestKey reads what [ManifestKey] writes.
func ParseManifestKey(key string) (version uint64, ok bool) {
	return ParseNumberedKey(ManifestPrefix, key)
}

// SegmentKey names a segment: segment/<role>/<epoch>/<uuid>. The two roles count
// their epochs independently, so the role is in the name.
func SegmentKey(role Role, epoch fence.Epoch, id string) string {
	return ownKey(SegmentPrefix, role, epoch, id)
}

// ParseSegmentKey reads what [SegmentKey] writes, and nothing else.
func ParseSegmentKey(key string) (role Role, epoch fence.Epoch, ok bool) {
	return parseOwnKey(SegmentPrefix, key)
}

// ListKey names a page of a list: list/<role>/<epoch>/<uuid>.
func ListKey(role Role, epoch fence.Epoch, id string) string {
	return ownKey(ListPrefix, role, epoch, id)
}

// ParseListKey reads what [ListKey] writes, and nothing else.
func ParseListKey(key string) (role Role, epoch fence.Epoch, ok bool) {
	return parseOwnKey(ListPrefix, key)
}

func ownKey(prefix string, role Role, epoch fence.Epoch, id string) string {
	return prefix + string(role) + "/" + FormatNumber(uint64(epoch)) + "/" + id
}

func parseOwnKey(prefix, key string) (role Role, epoch fence.Epoch, ok bool) {
	rest, ok := strings.CutPrefix(key, prefix)
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 3 {
		return "", 0, false
	}
	role = Role(parts[0])
	n, ok := ParseNumber(parts[1])
	return role, fence.Epoch(n), ok && (role == Writer || role == Compactor) && isUUID(parts[2])
}

func isUUID(s string) bool {
	id, err := uuid.Parse(s)
	return err == nil && id.String() == s
}

// MaxExt is how long the extension of a file may be, with its dot.
const MaxExt = 32

// FileKey names a file: file/<epoch>/<uuid><ext>, in the epoch of the leader that writes
// it. Ext is empty, or a dot and letters, digits, dots, hyphens and underscores, such as
// ".parquet". Ids that rise with time (UUID version 7) keep manifests small: files that
// are added together have neighbouring keys.
func FileKey(epoch fence.Epoch, id, ext string) string {
	return FilePrefix + FormatNumber(uint64(epoch)) + "/" + id + ext
}

// ParseFileKey reads what [FileKey] writes, and nothing else.
func ParseFileKey(key string) (epoch fence.Epoch, id, ext string, ok bool) {
	rest, ok := strings.CutPrefix(key, FilePrefix)
	number, name, found := strings.Cut(rest, "/")
	n, valid := ParseNumber(number)
	if !ok || !found || !valid || len(name) < uuidLen || !isUUID(name[:uuidLen]) || !validExt(name[uuidLen:]) {
		return 0, "", "", false
	}
	return fence.Epoch(n), name[:uuidLen], name[uuidLen:], true
}

// In a store that is for files only, and that many logs may share, each log has a folder, and
// all else lies below SharedDir. Engines that read tables take a folder with an underscore for
// none of their data.
const SharedDir = "_fencepost"

// FilesDir is the folder of a log in such a store: its file/<name> is <log>/<name> there.
func FilesDir(log fence.ID) string { return log.String() }

// MarkKey names what tells that a store has the files of a log, below [SharedDir].
func MarkKey(log fence.ID) string { return log.String() + ".json" }

func validExt(ext string) bool {
	if ext == "" {
		return true
	}
	for _, c := range []byte(ext) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '-' || c == '_') {
			return false
		}
	}
	return ext[0] == '.' && len(ext) > 1 && len(ext) <= MaxExt
}

// PinKey names a pin: pin/<uuid>.json.
func PinKey(id string) string { return PinPrefix + id + ".json" }

// ParsePinKey reads what [PinKey] writes, and nothing else.
func ParsePinKey(key string) (id string, ok bool) {
	rest, ok := strings.CutPrefix(key, PinPrefix)
	id, found := strings.CutSuffix(rest, ".json")
	return id, ok && found && isUUID(id)
}

// Role is one of the two that write manifests. Each has an election and epochs of its own.
type Role string

const (
	// Writer is the leader of the log.
	Writer Role = "writer"
	// Compactor folds and prunes.
	Compactor Role = "compactor"
)

// FormatKey is the object that says what a log is. It is created once.
const FormatKey = "format.json"

// DataPrefix begins the keys of all log objects.
const DataPrefix = "data/"

// Digits is how many digits every number in a key has. So keys sort as numbers do.
const Digits = 20

// FormatNumber returns n as it stands in keys.
func FormatNumber(n uint64) string {
	var b [Digits]byte
	for i := range b {
		b[Digits-1-i] = byte('0' + n%10)
		n /= 10
	}
	return string(b[:])
}

// ParseNumber reads what [FormatNumber] writes, and nothing else.
func ParseNumber(s string) (uint64, bool) {
	if len(s) != Digits {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 64) // digits only: neither sign nor underscore
	return n, err == nil
}

// DataKey is the key of a log object: data/<epoch>/<seq>.
func DataKey(p fence.Position) string {
	return DataPrefix + FormatNumber(uint64(p.Epoch)) + "/" + FormatNumber(p.Seq)
}

// ParseDataKey reads the key of a log object. It is false for every other key.
func ParseDataKey(key string) (fence.Position, bool) {
	rest, ok := strings.CutPrefix(key, DataPrefix)
	if !ok {
		return fence.Position{}, false
	}
	e, s, ok := strings.Cut(rest, "/")
	if !ok {
		return fence.Position{}, false
	}
	epoch, ok1 := ParseNumber(e)
	seq, ok2 := ParseNumber(s)
	return fence.Position{Epoch: fence.Epoch(epoch), Seq: seq}, ok1 && ok2 && seq > 0
}
