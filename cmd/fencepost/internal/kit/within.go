package kit

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// Directory returns the name of the store at the URL of a directory, with no link in it. It makes nothing.
func Directory(raw string) (name string, ok bool) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "file" || !filepath.IsAbs(u.Path) {
		return "", false
	}
	path, missing := filepath.Clean(u.Path), ""
	for {
		resolved, err := filepath.EvalSymlinks(path)
		if err == nil {
			return (&url.URL{Scheme: "file", Path: filepath.Join(resolved, missing)}).String(), true
		}
		if filepath.Dir(path) == path {
			return "", false
		}
		path, missing = filepath.Dir(path), filepath.Join(filepath.Base(path), missing)
	}
}

// PassedOver names the directories below that of a URL that cannot be read, such as the lost+found of a volume. A listing passes
// over those that are not of a log.
func (k *Kit) PassedOver(raw string) (names []string) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "file" {
		return nil
	}
	entries, _ := os.ReadDir(u.Path)
	for _, e := range entries {
		if !e.IsDir() || kept(e.Name(), slices.Concat(ofLogs, ofGroups, []string{".fencepost"})) {
			continue
		}
		if f, err := os.Open(filepath.Join(u.Path, e.Name())); err != nil {
			names = append(names, e.Name()+"/")
			k.Console.Note("%s/ cannot be read, and is passed over: %v", e.Name(), errors.Unwrap(err))
		} else {
			_ = f.Close()
		}
	}
	return names
}

// outside refuses to write in a folder that a log or a group keeps for itself, such as s3://bucket/orders/data. It asks nothing
// unless the place has a folder with such a name.
//
// guard:outside. A verb that makes a log, a lock or a register goes on only if its place certainly lies within no other log.
//
//mutant:replace err := within(ctx, st, name, name[i+1:]); err != nil => err := within(ctx, st, name, name[i+1:]); err != nil && false
func (k *Kit) outside(ctx context.Context, query, name string) error {
	for i, c := range name {
		if c != '/' || !kept(name[i+1:], slices.Concat(ofLogs, ofGroups, []string{".fencepost"})) {
			continue
		}
		parent := name[:i]
		if parent == "file://" {
			parent += "/"
		}
		if query != "" {
			parent += "?" + query
		}
		st, err := k.Opened(ctx, parent, false)
		if err != nil {
			continue // there is no such directory, or only a part of the name of a bucket
		}
		if err := within(ctx, st, name, name[i+1:]); err != nil {
			return err
		}
	}
	return nil
}

// ofLogs are the folders of a log.
var ofLogs = func() (all []string) {
	for _, k := range inspect.Kinds() {
		if folder, ok := strings.CutSuffix(k.Prefix(), "/"); ok {
			all = append(all, folder)
		}
	}
	return all
}()

// ofGroups are the folders of a group.
var ofGroups = []string{strings.TrimSuffix(group.Prefix, "/"), strings.TrimSuffix(group.CompactorsPrefix, "/"), strings.TrimSuffix(group.PartitionsPrefix, "/")}

// kept reports whether a path begins with one of these folders. A file system may ignore case.
func kept(path string, folders []string) bool {
	first, _, _ := strings.Cut(strings.ToLower(path), "/")
	return slices.Contains(folders, first)
}

// within returns an error if a store has a log or a group that keeps the first folder of a path for itself.
func within(ctx context.Context, st store.Store, name, path string) error {
	settle, outer := &store.SettleOptions{Reads: 1}, st.Traits().Name
	if !kept(path, ofGroups) {
		_, err := manifest.ReadFormat(ctx, st, settle)
		if errors.Is(err, manifest.ErrNotInitialized) {
			if err = survey.Orphaned(ctx, st, settle); err == nil {
				return nil
			}
		}
		switch {
		case errors.Is(err, store.ErrDenied):
			return nil // its rights are those for this place only
		case err == nil:
			return Usage("%s lies within the log in %s, which keeps this folder for itself: give another place", name, outer)
		case errors.Is(err, fence.ErrCorrupt), errors.Is(err, fence.ErrFormat), errors.Is(err, manifest.ErrRestoring):
			return Usage("%s lies within %s, which has a log that cannot be read: give another place: %w", name, outer, err)
		}
		return err
	}
	rest, ok := strings.CutPrefix(strings.ToLower(path), group.PartitionsPrefix)
	if number, _, _ := strings.Cut(rest, "/"); ok && number != "" && strings.Trim(number, "0123456789") == "" {
		return nil // the place of a log of the group
	}
	switch _, _, err := store.Read(ctx, st, group.FormatKey, &store.ReadOptions{Limit: 1 << 20, Settle: settle}); {
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrDenied):
		return nil
	case err == nil, errors.Is(err, store.ErrTooLarge):
		return Usage("%s lies within the group in %s, which keeps this folder for itself: give another place", name, outer)
	default:
		return err
	}
}
