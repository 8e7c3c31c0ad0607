package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/fencepost/fencepost/store"
)

// The names of objects below the root of a table, as the publisher writes them. All numbers have as many digits, so a listing can
// begin at one.
const (
	folder  = "metadata/"
	hintKey = folder + "version-hint.text"
	suffix  = ".metadata.json"
	least   = 1_000_000_000
	most    = 1<<31 - 1
)

func versionKey(n int64) string { return folder + "v" + strconv.FormatInt(n, 10) + suffix }

// parse reads the number of a version; 0: it is none.
func parse(digits string) int64 {
	if n, err := strconv.ParseInt(digits, 10, 64); err == nil && n > least && n <= most && strconv.FormatInt(n, 10) == digits {
		return n
	}
	return 0
}

// table is a table with what this server remembers of it.
type table struct {
	Table
	settle *store.SettleOptions

	mu   sync.Mutex
	root store.Store // nil until its metadata was found
	seen version     // the newest that was served
}

// version is one of a table.
type version struct {
	number int64
	uuid   string // of the table
}

// newest is the version that a listing showed last.
type newest struct {
	root   store.Store
	number int64
	info   store.Info
	before version // what was served before the listing began
}

// places are where a table can be: in the folder of the log's files, or in a store of its own.
var places = []string{"file", ""}

// place returns the root of the table. A log has no folder metadata, and the store of a table has none below file: so one that
// was found stays right.
func (t *table) place(ctx context.Context) (store.Store, version, error) {
	t.mu.Lock()
	root, seen := t.root, t.seen
	t.mu.Unlock()
	if root != nil {
		return root, seen, nil
	}
	for i, at := range places {
		root, err := store.Sub(t.Store, at)
		if err != nil {
			return nil, seen, err
		}
		for _, err := range store.ListAll(ctx, root, folder, nil, t.settle) {
			if i > 0 && errors.Is(err, store.ErrDenied) {
				break // whoever may read the folder of files need not see the rest of a log
			}
			if err != nil {
				return nil, seen, err
			}
			t.mu.Lock()
			defer t.mu.Unlock()
			t.root = root
			return root, t.seen, nil
		}
	}
	return nil, seen, t.missing()
}

func (t *table) missing() error {
	return notFound("NoSuchTableException", "the table %s.%s has no version yet: it can be loaded when its log is published as an Iceberg table", t.Namespace, t.Name)
}

// newest finds the newest version.
func (t *table) newest(ctx context.Context) (*newest, error) {
	root, before, err := t.place(ctx)
	if err != nil {
		return nil, err
	}
	n := &newest{root: root, before: before}
	from := before.number
	if from == 0 {
		if from, err = t.hint(ctx, root); err != nil {
			return nil, err
		}
	}
	if err := t.list(ctx, n, from); err != nil {
		return nil, err
	}
	if n.number < from { // nothing is there from that one on
		if err := t.list(ctx, n, 0); err != nil {
			return nil, err
		}
	}
	// guard:catalog-hint. A server that has served no version yet serves none that is older than the one in the hint.
	//
	//mutant:replace before.number == 0 && n.number < from => false
	if before.number == 0 && n.number < from {
		return nil, t.lost(hintKey+" names", from)
	}
	if n.number == 0 {
		return nil, t.missing()
	}
	return n, nil
}

// lost says that a version is gone, and no newer one is there.
func (t *table) lost(why string, number int64) error {
	return t.broken("%s version %d, which is gone, and no newer one is there: restore %s from a backup, or publish to a new place", why, number, versionKey(number))
}

// hint returns the number in the hint, or 0.
func (t *table) hint(ctx context.Context, root store.Store) (int64, error) {
	body, _, err := store.Read(ctx, root, hintKey, &store.ReadOptions{Limit: 1 << 10, Settle: t.settle})
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrTooLarge) {
		return 0, nil
	}
	return parse(strings.TrimSpace(string(body))), err
}

// list finds the newest version, from a number on.
func (t *table) list(ctx context.Context, n *newest, from int64) error {
	o := &store.ListOptions{StartAfter: versionKey(max(from, least+1) - 1)}
	for info, err := range store.ListAll(ctx, n.root, folder, o, t.settle) {
		if err != nil {
			return err
		}
		digits, ok := strings.CutSuffix(strings.TrimPrefix(info.Key, folder+"v"), suffix)
		if v := parse(digits); ok && v != 0 && v >= n.number {
			n.number, n.info = v, info
		}
	}
	return nil
}

// document is what the catalog needs of a version's metadata.
type document struct {
	UUID     string `json:"table-uuid"`
	Location string `json:"location"`
	Current  int64  `json:"current-snapshot-id"`
	Refs     map[string]struct {
		Snapshot int64 `json:"snapshot-id"`
	} `json:"refs"`
}

const notMetadata = "%s is not the metadata of a table: %v"

// errChanged: an object that was listed is gone, or another one is there.
var errChanged = errors.New("catalog: the object has changed since it was listed")

// read returns the metadata of a version.
func (t *table) read(ctx context.Context, n *newest) ([]byte, *document, error) {
	body, info, err := store.Read(ctx, n.root, n.info.Key, &store.ReadOptions{Limit: n.info.Size, Settle: t.settle})
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrTooLarge) || err == nil && info.Version != n.info.Version {
		return nil, nil, errChanged
	}
	if err != nil {
		return nil, nil, err
	}
	d := &document{}
	if err := json.Unmarshal(body, d); err != nil {
		return nil, nil, t.broken(notMetadata, n.info.Key, err)
	}
	if d.UUID == "" || !strings.Contains(d.Location, ":/") {
		return nil, nil, t.broken(notMetadata, n.info.Key, "it has no table-uuid, or no location")
	}
	// guard:catalog-rises. A server never serves a lower version of a table than it has served before the request.
	//
	//mutant:replace n.number < n.before.number && d.UUID == n.before.uuid => false
	if n.number < n.before.number && d.UUID == n.before.uuid {
		return nil, nil, t.lost("this server has served", n.before.number)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if d.UUID != t.seen.uuid || n.number > t.seen.number {
		t.seen = version{n.number, d.UUID}
	}
	return body, d, nil
}
