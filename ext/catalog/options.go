package catalog

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/ext/agent/door"
	"github.com/fencepost/fencepost/store"
)

// ErrOptions: an option has a value that cannot work.
var ErrOptions = errors.New("catalog: wrong options")

// Table is a table that is served.
type Table struct {
	// Namespace and Name are what engines call it: 1 to 128 letters, digits, _ and -.
	Namespace, Name string
	// Store is that of the log, which has the table beside its files; or that of the table.
	Store store.Store
}

// Options of a server. At least one table is needed.
type Options struct {
	Tables []Table
	// Door says whose requests are served; by default, everybody's.
	Door door.Door
	// Settle tunes the retries of requests to the store.
	Settle *store.SettleOptions
	// Logger is silent by default.
	Logger *zap.Logger
}

var nameRE = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

// Validate returns all that is wrong with the options, as New does. Each fault is [ErrOptions].
func (o *Options) Validate() error {
	if o == nil || len(o.Tables) == 0 {
		return fmt.Errorf("%w: there are no Tables: name at least one", ErrOptions)
	}
	var faults []error
	had := map[string]bool{}
	for _, t := range o.Tables {
		for _, name := range []string{t.Namespace, t.Name} {
			if !nameRE.MatchString(name) {
				faults = append(faults, fmt.Errorf("%w: %.200q cannot name a table or a namespace: take 1 to 128 letters, digits, _ and -, as in sales.orders=URL", ErrOptions, name))
			}
		}
		// Engines differ in whether they tell upper case from lower case.
		id := strings.ToLower(t.Namespace + "." + t.Name)
		if had[id] {
			faults = append(faults, fmt.Errorf("%w: two tables are called %s, but for case: give one another name, as in sales.orders=URL", ErrOptions, id))
		}
		had[id] = true
		if store.IsNil(t.Store) {
			faults = append(faults, fmt.Errorf("%w: the Store of the table %s is nil: pass that of its log", ErrOptions, id))
		}
	}
	return errors.Join(append(faults, o.Settle.Validate())...)
}
