package files

import (
	"fmt"
	"strings"

	"github.com/fencepost/fencepost/store"
)

// Fit returns [ErrStore] if a log in st needs a second store for files and none is given, or if
// one is given and the log has none, or if one of the two lies within the other. Second tells whether it has one, and home what that called
// itself when the log was created. It sends no request.
func Fit(st, given store.Store, second bool, home string) error {
	switch none := store.IsNil(given); {
	case second && none:
		return fmt.Errorf("%w: the log in %s keeps its files in another store, %s; open that one and give it as the option Files (on the command line: --files URL)", ErrStore, st.Traits().Name, home)
	case !second && !none:
		return fmt.Errorf("%w: the log in %s keeps its files in its own store; leave out the option Files (on the command line: --files), or create a new log with it", ErrStore, st.Traits().Name)
	case second:
		if err := Apart(st, given); err != nil {
			return fmt.Errorf("%w: %w", ErrStore, err)
		}
	}
	return nil
}

// Apart refuses to keep a log below its files, or files below their log.
//
// guard:files-apart. A log and its store for files do not lie within one another.
//
//mutant:replace inside(a, b) || inside(b, a) => false
func Apart(st, files store.Store) error {
	a, b := st.Traits().Name, files.Traits().Name
	if nameless(a) || nameless(b) {
		return nil
	}
	if inside(a, b) || inside(b, a) {
		return fmt.Errorf("the store for files, %s, and that of the log, %s, lie one within the other: what deletes strange objects there would delete the log's. Give each a prefix of its own", b, a)
	}
	return nil
}

// nameless reports whether a store in memory has no name of its own: its name says nothing of its
// place, for many are called so.
func nameless(name string) bool {
	place, memory := strings.CutPrefix(name, "mem://")
	return memory && place == ""
}

// inside reports whether a place is another or below it.
func inside(place, other string) bool {
	return strings.HasPrefix(strings.TrimSuffix(place, "/")+"/", strings.TrimSuffix(other, "/")+"/")
}
