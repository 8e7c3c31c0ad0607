package layout

import (
	"strconv"
	"strings"

	"github.com/fencepost/fencepost/fence"
)

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
