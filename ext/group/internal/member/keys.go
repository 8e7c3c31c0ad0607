package member

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost/fence"
)

// The keys of a group. All begin with Prefix, so one listing shows everything.
const (
	Prefix       = "group/"
	FormatKey    = Prefix + "group.json"
	HeadKey      = Prefix + "head.json"
	MemberPrefix = Prefix + "member/"
	CallPrefix   = Prefix + "call/"
	AssignPrefix = Prefix + "assign/"
	ReadyPrefix  = Prefix + "ready/"
	AckPrefix    = Prefix + "ack/"
)

const suffix = ".json"

// FormatNumber writes n with 20 digits, so that names sort as numbers do.
func FormatNumber(n uint64) string { return fmt.Sprintf("%020d", n) }

// ParseNumber reads what [FormatNumber] writes, and nothing else.
func ParseNumber(s string) (n uint64, ok bool) {
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil && FormatNumber(n) == s
}

// Key is the key of the member's object.
func Key(name fence.ID) string { return MemberPrefix + name.String() + suffix }

// AssignKey is the key of the assignment with number n.
func AssignKey(n uint64) string { return AssignPrefix + FormatNumber(n) }

// The calls of a member: that it has joined, that it is leaving, and those with contents.
const (
	joined  = "joined"
	leaving = "leaving"
)

func callKey(name fence.ID, what string) string {
	return CallPrefix + name.String() + "/" + what + suffix
}

// Leaving is the call that a member leaves, and its key. Whoever creates it makes the member leave.
func Leaving(name fence.ID, nonce string) (key string, doc *Sign) {
	return callKey(name, leaving), &Sign{Nonce: nonce}
}

func readyKey(name fence.ID, n uint64) string {
	return ReadyPrefix + name.String() + "/" + FormatNumber(n) + suffix
}

func ackKey(name fence.ID, n, i uint64) string {
	return AckPrefix + name.String() + "/" + FormatNumber(n) + "/" + FormatNumber(i) + suffix
}

// ParseKey returns the member that an object below prefix belongs to, and the rest of the key without its
// extension. It is false for keys of another form.
func ParseKey(prefix, key string) (name fence.ID, rest string, ok bool) {
	key, ok = strings.CutPrefix(key, prefix)
	if !ok {
		return fence.ID{}, "", false
	}
	key, ok = strings.CutSuffix(key, suffix)
	if !ok {
		return fence.ID{}, "", false
	}
	id, rest, _ := strings.Cut(key, "/")
	if name.UnmarshalText([]byte(id)) != nil || name.String() != id {
		return fence.ID{}, "", false
	}
	return name, rest, true
}

// ParseAssignKey reads what [AssignKey] writes, and nothing else.
func ParseAssignKey(key string) (n uint64, ok bool) {
	rest, ok := strings.CutPrefix(key, AssignPrefix)
	if !ok {
		return 0, false
	}
	n, ok = ParseNumber(rest)
	return n, ok && n > 0
}

// parseReady returns the number in the key of a ready object.
func parseReady(key string) (name fence.ID, n uint64, ok bool) {
	name, rest, ok := ParseKey(ReadyPrefix, key)
	if !ok {
		return name, 0, false
	}
	n, ok = ParseNumber(rest)
	return name, n, ok
}

// parseAck returns the number of the assignment in the key of an acknowledgement.
func parseAck(key string) (name fence.ID, n uint64, ok bool) {
	name, rest, ok := ParseKey(AckPrefix, key)
	first, second, both := strings.Cut(rest, "/")
	n, ok1 := ParseNumber(first)
	_, ok2 := ParseNumber(second)
	return name, n, ok && both && ok1 && ok2
}
