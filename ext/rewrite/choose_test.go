package rewrite

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/manifest"
)

// sized are files of some sizes, in the order of their keys.
func sized(sizes ...int64) (files []manifest.File) {
	for i, size := range sizes {
		files = append(files, manifest.File{Key: key(1, i), Size: size})
	}
	return files
}

func key(epoch fence.Epoch, n int) string {
	return layout.FileKey(epoch, fmt.Sprintf("00000000-0000-7000-8000-%012d", n), ".csv")
}

func times(n int, size int64) []int64 { return slices.Repeat([]int64{size}, n) }

// sizes of the files of each rewrite.
func sizes(chosen [][]manifest.File) (all [][]int64) {
	for _, files := range chosen {
		var some []int64
		for _, f := range files {
			some = append(some, f.Size)
		}
		all = append(all, some)
	}
	return all
}

func TestChoose(t *testing.T) {
	o := &Options{Target: 1000, MinFiles: 4, MaxFiles: 6}
	for name, c := range map[string]struct {
		in   []int64
		want [][]int64
	}{
		"nothing":                     {nil, nil},
		"one":                         {times(1, 5), nil},
		"too few":                     {times(3, 5), nil},
		"enough":                      {times(4, 5), [][]int64{times(4, 5)}},
		"empty files":                 {times(4, 0), [][]int64{times(4, 0)}},
		"too many for one":            {times(10, 5), [][]int64{times(6, 5), times(4, 5)}},
		"and some are left":           {times(9, 5), [][]int64{times(6, 5)}},
		"large ones are left alone":   {times(9, 500), nil},
		"two make a large one":        {[]int64{499, 300}, [][]int64{{499, 300}}},
		"two do not":                  {[]int64{250, 249}, nil},
		"but three do":                {[]int64{250, 249, 1}, [][]int64{{250, 249, 1}}},
		"no more than the target":     {times(5, 400), [][]int64{{400, 400}, {400, 400}}},
		"small ones do not wake up a": {append(times(3, 1), 300), nil},
		"each level for itself":       {append(times(4, 20), times(4, 5)...), [][]int64{times(4, 5), times(4, 20)}},
		"the smallest of a level":     {[]int64{60, 30, 20, 20, 20, 20, 20}, [][]int64{{30, 20, 20, 20, 20, 20}}},
	} {
		got := sizes(Choose(sized(c.in...), o))
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v became %v, want %v", name, c.in, got, c.want)
		}
	}
	if got := sizes(Choose(sized(times(8, 1<<20)...), nil)); len(got) != 1 || len(got[0]) != 8 {
		t.Errorf("by default: %v", got)
	}
}

// TestChooseGroups: files of different groups are not merged, and some not at all.
func TestChooseGroups(t *testing.T) {
	files := sized(times(13, 5)...)
	for i := range files {
		files[i].Meta = map[string]string{"day": fmt.Sprint(i % 3)}
	}
	o := &Options{MinFiles: 4, Group: func(f manifest.File) (string, bool) { return f.Meta["day"], f.Meta["day"] != "2" }}
	chosen := Choose(files, o)
	if len(chosen) != 2 || len(chosen[0]) != 5 || len(chosen[1]) != 4 {
		t.Fatal(sizes(chosen))
	}
	for i, files := range chosen {
		for _, f := range files {
			if f.Meta["day"] != fmt.Sprint(i) {
				t.Errorf("a file of day %s in group %d", f.Meta["day"], i)
			}
		}
	}
}

// TestChooseByMeta: by default only files with the same Meta are merged. What a file replaces is not
// the application's, so it makes no difference.
func TestChooseByMeta(t *testing.T) {
	files := sized(times(12, 5)...)
	for i := range files {
		files[i].Meta = map[string]string{"day": fmt.Sprint(i % 3), "region": "eu"}
		switch i % 3 {
		case 0:
			if err := files[i].SetReplaces([]string{key(9, i)}); err != nil {
				t.Fatal(err)
			}
		case 2:
			files[i].Meta = nil // without Meta, which is another value too
		}
	}
	chosen := Choose(files, &Options{MinFiles: 4})
	if len(chosen) != 3 {
		t.Fatal(sizes(chosen))
	}
	for _, files := range chosen {
		for _, f := range files {
			if len(files) != 4 || f.Meta["day"] != files[0].Meta["day"] {
				t.Errorf("%v is merged with %v", f.Meta, files[0].Meta)
			}
		}
	}
}

// TestChooseFitsLongMeta: a Meta that is carried over leaves less room for names.
func TestChooseFitsLongMeta(t *testing.T) {
	var files []manifest.File
	long := map[string]string{"note": strings.Repeat("x", 600)}
	for i := range 40 {
		files = append(files, manifest.File{Key: key(1, i), Size: 10, Meta: long})
	}
	for _, some := range Choose(files, &Options{MaxFiles: mostFiles}) {
		f, keys := manifest.File{Key: key(2, 0), Meta: maps.Clone(long)}, []string{}
		for _, g := range some {
			keys = append(keys, g.Key)
		}
		if err := f.SetReplaces(keys); err != nil {
			t.Errorf("%d files: %v", len(some), err)
		}
		if len(some) < 10 {
			t.Errorf("only %d files", len(some))
		}
	}
	long["note"] = strings.Repeat("x", 900)
	if chosen := Choose(files, nil); len(chosen) > 0 {
		t.Errorf("there is no room for names, and it chooses %v", sizes(chosen))
	}
}

// TestChooseFitsMeta: the names of the files always fit into the Meta of the new one.
func TestChooseFitsMeta(t *testing.T) {
	for _, epochs := range []int{1, 3, 40} {
		var files []manifest.File
		for i := range 40 {
			files = append(files, manifest.File{Key: key(fence.Epoch(1+i%epochs), i), Size: 10})
		}
		chosen := Choose(files, &Options{MaxFiles: mostFiles})
		if len(chosen) == 0 || len(chosen[0]) < 20 || !slices.IsSortedFunc(chosen[0], func(a, b manifest.File) int { return cmp.Compare(a.Key, b.Key) }) {
			t.Fatalf("%d epochs: %v", epochs, chosen)
		}
		var keys []string
		for _, f := range chosen[0] {
			keys = append(keys, f.Key)
		}
		f := manifest.File{Key: key(50, 0), Meta: map[string]string{"day": "2026-11-22", "hour": "12"}}
		if err := f.SetReplaces(keys); err != nil {
			t.Errorf("%d epochs: %v", epochs, err)
		}
	}
}

// TestChooseAmplification: files that come for ever are written again a few times, and few
// small ones are left.
func TestChooseAmplification(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	o := &Options{Target: 128 << 20}
	var files []manifest.File
	var came, written int64
	n := 0
	for range 5000 {
		size := 1<<20 + rng.Int64N(1<<19)
		n++
		came += size
		files = append(files, manifest.File{Key: key(1, n), Size: size})
		for chosen := Choose(files, o); len(chosen) > 0; chosen = Choose(files, o) {
			for _, some := range chosen {
				var sum int64
				for _, f := range some {
					sum += f.Size
					files = slices.DeleteFunc(files, func(g manifest.File) bool { return g.Key == f.Key })
				}
				n++
				written += sum
				files = append(files, manifest.File{Key: key(1, n), Size: sum})
			}
		}
	}
	small := 0
	for _, f := range files {
		if f.Size < o.Target/2 {
			small++
		}
	}
	t.Logf("%d MiB came, written again %.2f times, %d files, %d of them small", came>>20, float64(written)/float64(came), len(files), small)
	if float64(written) > 3*float64(came) || small > 7*bits.Len64(uint64(o.Target))/3 {
		t.Errorf("%.2f times, %d small files", float64(written)/float64(came), small)
	}
}
