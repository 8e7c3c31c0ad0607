package group

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/ext/group/internal/member"
	"github.com/fencepost/fencepost/store"
)

// The keys below which a group has its objects, for those who name them in rules and messages.
const (
	// Prefix begins the keys of all objects of a group, but for those of its logs.
	Prefix = member.Prefix
	// FormatKey is the object that every group has.
	FormatKey = member.FormatKey
	// PartitionsPrefix begins the keys of the logs of all partitions.
	PartitionsPrefix = "partition/"
	// CompactorsPrefix begins the keys of the group in which compactors share the logs: see [Compact].
	CompactorsPrefix = compactors + "/"
)

const compactors = "compactors"

// PartitionPrefix is the folder of the log of one partition, without a slash at its end. All have six digits, so
// that they sort as numbers do.
func PartitionPrefix(partition int) string { return fmt.Sprintf(PartitionsPrefix+"%06d", partition) }

// prefixes begin the keys of a group, of the group of its compactors, and of the logs of its partitions.
var prefixes = []string{Prefix, CompactorsPrefix, PartitionsPrefix}

// OfGroup reports whether an object has the key of one of a group, of the group of its compactors, or of the log of a
// partition.
func OfGroup(key string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// Deleted are the prefixes below which members delete what nobody needs any more, for rules about their rights.
func Deleted() []string {
	return []string{member.MemberPrefix, member.CallPrefix, member.AssignPrefix, member.ReadyPrefix, member.AckPrefix}
}

// PartitionStore is the part of st that holds the log of a partition of the group in st, for a reader
// or a compactor: the keys that begin with "partition/<6 digits>/".
func PartitionStore(st store.Store, partition int) (store.Store, error) {
	return store.Sub(st, PartitionPrefix(partition))
}
