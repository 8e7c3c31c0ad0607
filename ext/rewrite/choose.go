package rewrite

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/manifest"
)

// Choose returns the files that should be merged now: each element is one rewrite. It depends
// on nothing but its arguments. A file is in one rewrite at most.
//
// Sizes fall into levels, each MinFiles times as large as the one below. When MinFiles files
// of a level wait, they are merged, and the result is on a higher level. Files that have half
// of Target together are merged too, whatever their levels. So a row is written again about
// once for each level: three times from 1 MiB to 128 MiB.
func Choose(files []manifest.File, opts *Options) [][]manifest.File {
	o := opts.withDefaults()
	groups := map[string][]manifest.File{}
	for _, f := range files {
		if group, ok := o.Group(f); ok && !o.large(f.Size) {
			groups[group] = append(groups[group], f)
		}
	}
	var all [][]manifest.File
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		rest := groups[group]
		slices.SortFunc(rest, func(a, b manifest.File) int {
			return cmp.Or(cmp.Compare(a.Size, b.Size), cmp.Compare(a.Key, b.Key))
		})
		for l := 0; len(rest) > 0 && l <= o.level(rest[len(rest)-1].Size); l++ {
			for {
				some := o.ofLevel(rest, l)
				if some == nil {
					break
				}
				all, rest = appendOrdered(all, some), without(rest, some)
			}
		}
		if some := o.last(rest); some != nil {
			all = appendOrdered(all, some)
		}
	}
	return all
}

// large reports whether a file of so many bytes is never merged any more.
func (o *Options) large(size int64) bool { return size >= o.Target-o.Target/2 }

// level is the logarithm of a size, to the base of MinFiles.
func (o *Options) level(size int64) (l int) {
	for size >= int64(o.MinFiles) {
		size /= int64(o.MinFiles)
		l++
	}
	return l
}

// ofLevel returns files of a level to merge, the smallest first; nil if there are too few.
// Files come in order of their sizes.
func (o *Options) ofLevel(files []manifest.File, l int) []manifest.File {
	var same []manifest.File
	for _, f := range files {
		if o.level(f.Size) == l {
			same = append(same, f)
		}
	}
	if len(same) < o.MinFiles {
		return nil
	}
	n, _ := o.fit(same)
	return same[:n:n]
}

// last returns the largest files, if they make a large one.
func (o *Options) last(files []manifest.File) []manifest.File {
	largest := slices.Clone(files)
	slices.Reverse(largest)
	n, total := o.fit(largest)
	if n < 2 || !o.large(total) {
		return nil
	}
	return largest[:n:n]
}

// fit returns how many of some files one rewrite may have, from the first on, and their bytes.
// It is two at least, if there are two: none of them is large.
func (o *Options) fit(files []manifest.File) (n int, total int64) {
	for _, f := range files {
		if n == o.MaxFiles || total > o.Target-f.Size {
			break
		}
		total += f.Size
		n++
	}
	return n, total
}

func appendOrdered(all [][]manifest.File, some []manifest.File) [][]manifest.File {
	if some = inOrder(some); len(some) > 0 {
		all = append(all, some)
	}
	return all
}

// inOrder returns files in the order of their keys, which is about that in which they were
// made. The new file has to list them in its Meta: those for which there is no room are left
// out. That happens if nearly each of them is of another epoch, or if they share a long Meta. If
// there is no room for two, none is merged.
func inOrder(files []manifest.File) []manifest.File {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b manifest.File) int { return cmp.Compare(a.Key, b.Key) })
	keys := make([]string, len(files))
	for i := range files {
		keys[i] = files[i].Key
	}
	said := map[string]string{"": strings.Repeat("x", applicationMeta)}
	for n := len(files); n >= 2; n-- {
		like := manifest.File{Key: files[0].Key, Meta: carried(files[:n], said)}
		if like.SetReplaces(keys[:n]) == nil {
			return files[:n]
		}
	}
	return nil
}

// applicationMeta is how many bytes of Meta are left for what the application's function returns.
const applicationMeta = 140

// without returns files without some of them. Both come in the same order.
func without(files, some []manifest.File) (rest []manifest.File) {
	for _, f := range files {
		if len(some) > 0 && f.Key == some[0].Key {
			some = some[1:]
			continue
		}
		rest = append(rest, f)
	}
	return rest
}

// replaces is the entry of a file's Meta that manifest.File.SetReplaces makes.
const replaces = "replaces"

// byMeta is the default of [Options].Group. Files of different partitions differ in their Meta. A file
// with the rows of two days would belong to neither.
func byMeta(f manifest.File) (group string, ok bool) {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(f.Meta)) {
		if name != replaces {
			fmt.Fprintf(&b, "%q=%q,", name, f.Meta[name])
		}
	}
	return b.String(), true
}

// common returns the entries of Meta on which all files agree.
func common(files []manifest.File) map[string]string {
	meta := maps.Clone(files[0].Meta)
	delete(meta, replaces)
	maps.DeleteFunc(meta, func(name, value string) bool {
		return slices.ContainsFunc(files, func(f manifest.File) bool {
			other, ok := f.Meta[name]
			return !ok || other != value
		})
	})
	return meta
}

// carried returns the Meta of a new file: what all files agree on, and what the function says.
func carried(files []manifest.File, said map[string]string) map[string]string {
	meta := common(files)
	if meta == nil {
		return said
	}
	maps.Copy(meta, said)
	return meta
}
