package iceberg

import (
	"fmt"
	"hash/crc32"
	"regexp"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/fence"
)

// The names of objects below the table's root.
const (
	prefix  = "metadata/"
	hintKey = prefix + "version-hint.text"
	suffix  = ".metadata.json"
	// base is added to the number of a version in its name. So all names have as many digits, and sort as their
	// numbers do: a listing can begin at a version. Readers want no zeros before a number, and take it
	// for an integer of 32 bits.
	base = 1_000_000_000
	most = 1<<31 - 1 - base
)

func versionKey(version int64) string {
	return fmt.Sprintf("%sv%d%s", prefix, base+version, suffix)
}

// parseVersion reads what versionKey writes.
func parseVersion(key string) (version int64, ok bool) {
	digits, ok := strings.CutPrefix(key, prefix+"v")
	digits, ok2 := strings.CutSuffix(digits, suffix)
	n, err := strconv.ParseInt(digits, 10, 64)
	return n - base, ok && ok2 && err == nil && len(digits) == 10 && n > base && n <= base+most
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// manifestKey names a manifest of a version with files of one log. The name has the checksum of the bytes.
func manifestKey(version int64, log fence.ID, body []byte) string {
	return fmt.Sprintf("%s%010d-%s-%s-%08x.avro", prefix, version, log, uuid.NewString(), crc32.Checksum(body, castagnoli))
}

// listKey names the manifest list of a version.
func listKey(version int64, body []byte) string {
	return fmt.Sprintf("%s%010d-list-%s-%08x.avro", prefix, version, uuid.NewString(), crc32.Checksum(body, castagnoli))
}

var avroName = regexp.MustCompile(`^metadata/([0-9]{10})-([0-9a-f]{32}|list)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-([0-9a-f]{8})\.avro$`)

// avroKey is what the name of a manifest or of a list says.
type avroKey struct {
	version int64
	log     fence.ID // zero of a list
	crc     uint32
}

func parseAvro(key string) (a avroKey, ok bool) {
	m := avroName.FindStringSubmatch(key)
	if m == nil {
		return a, false
	}
	a.version, _ = strconv.ParseInt(m[1], 10, 64)
	if m[2] != "list" && a.log.UnmarshalText([]byte(m[2])) != nil {
		return a, false
	}
	crc, err := strconv.ParseUint(m[3], 16, 32)
	a.crc = uint32(crc)
	return a, err == nil
}
