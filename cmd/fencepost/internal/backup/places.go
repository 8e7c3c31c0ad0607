package backup

import (
	"fmt"
	"strings"

	"github.com/fencepost/fencepost/store"
)

// distinct refuses to have a log and its backup in one place, or one within the other: what lists,
// cleans up or deletes the outer one would meet the inner one. Stores on servers of other addresses, and
// those in memory without a name, are taken for distinct.
func distinct(log, backup store.Store, what, which string) error {
	a, b := log.Traits(), backup.Traits()
	if strings.TrimSuffix(a.Endpoint, "/") != strings.TrimSuffix(b.Endpoint, "/") || a.Name == "mem://" || b.Name == "mem://" {
		return nil
	}
	if inside(a.Name, b.Name) || inside(b.Name, a.Name) {
		return fmt.Errorf("%s in %s and %s in %s are the same place, or one lies within the other; nothing was copied; give each a place of its own", what, a.Name, which, b.Name)
	}
	return nil
}

// inside reports whether a place is another or below it.
func inside(place, other string) bool {
	return strings.HasPrefix(strings.TrimSuffix(place, "/")+"/", strings.TrimSuffix(other, "/")+"/")
}
