package delta

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The names of objects below the table's root.
const (
	logPrefix  = "_delta_log/"
	lastKey    = logPrefix + "_last_checkpoint"
	digits     = 20
	checkpoint = ".checkpoint.parquet"
)

// folders are below the table's root: what logs keep in a store for files, and the tables of all formats, of which a publisher may
// have only one.
var folders = []string{"_fencepost/", logPrefix, "metadata/"}

func inFolder(key string) bool {
	return slices.ContainsFunc(folders, func(of string) bool { return strings.HasPrefix(key, of) })
}

// fileName matches the names of files that logs write, below the table's root.
var fileName = regexp.MustCompile(`^([0-9a-f]{32}/)?[0-9]{20}/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(\.[A-Za-z0-9.]+)?$`)

func commitKey(version int64) string { return fmt.Sprintf("%s%0*d.json", logPrefix, digits, version) }
func checkpointKey(version int64) string {
	return fmt.Sprintf("%s%0*d%s", logPrefix, digits, version, checkpoint)
}

type kind int

const (
	notOurs kind = iota // no name that this package writes
	aCommit
	aCheckpoint
	theLast
)

// parseKey tells what an object below the root is.
func parseKey(key string) (version int64, k kind) {
	if key == lastKey {
		return 0, theLast
	}
	name, ok := strings.CutPrefix(key, logPrefix)
	if !ok || len(name) <= digits {
		return 0, notOurs
	}
	n, err := strconv.ParseUint(name[:digits], 10, 63)
	switch {
	case err != nil:
		return 0, notOurs
	case name[digits:] == ".json":
		return int64(n), aCommit
	case name[digits:] == checkpoint:
		return int64(n), aCheckpoint
	}
	return 0, notOurs
}
