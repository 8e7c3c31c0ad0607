package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/fencepost/fencepost/clock"
)

var (
	list    = flag.Bool("list", false, "list the guards and what their mutants are, and run nothing")
	doc     = flag.Bool("doc", false, "write "+page+", and run nothing")
	only    = flag.String("run", "", "only guards whose name this `regexp` matches")
	tuning  = flag.Bool("tuning", false, "take out what is tuning, instead of the guards")
	share   = flag.String("share", "", "only this part of the guards, such as 2/8")
	workers = flag.Int("p", 2, "mutants at once")
	budget  = flag.Duration("budget", 0, "begin no mutant after so long; they are taken in random order. 0: all, in the tree's order")
	order   = flag.Uint64("order", 0, "of -budget: the `seed` of the order; 0: from the time of day")
	seeds   = flag.Int("seeds", 2000, "histories of the simulation for what the tests of all packages let live")
	timeout = flag.Duration("timeout", 90*time.Second, "of one run of tests; a mutant that only hangs is not killed")
	verbose = flag.Bool("v", false, "print what the tests that failed print")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
	}
	if !ok || err != nil {
		os.Exit(1)
	}
}

func run(ctx context.Context) (ok bool, err error) {
	root, err := filepath.Abs(".")
	if err != nil {
		return false, err
	}
	if _, err := os.Stat("go.mod"); err != nil {
		return false, errors.New("run it in the root of the module: go run ./internal/test/mutants")
	}
	guards, err := find(root)
	if err != nil {
		return false, err
	}
	if *doc {
		return true, os.WriteFile(page, table(guards), 0o644)
	}
	match, err := regexp.Compile(*only)
	if err != nil {
		return false, err
	}
	guards = slices.DeleteFunc(guards, func(g guard) bool { return g.tuning != *tuning || !match.MatchString(g.name) })
	if guards, err = partOf(guards, *share); err != nil {
		return false, err
	}
	if len(guards) == 0 {
		return false, fmt.Errorf("no guard matches %q", *only)
	}
	if *list {
		return printed(guards)
	}
	tmp, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	modules := map[string]bool{}
	for _, g := range guards {
		modules[module(root, g.file)] = true
	}
	users, err := usersOf(ctx, root, slices.Sorted(maps.Keys(modules))...)
	if err != nil {
		return false, err
	}
	if *budget > 0 {
		if *order == 0 {
			*order = uint64(clock.System().Wall().UnixMilli())
		}
		rand.New(rand.NewPCG(*order, 0)).Shuffle(len(guards), func(i, j int) { guards[i], guards[j] = guards[j], guards[i] })
	}
	return judge(ctx, root, tmp, users, guards)
}

// printed lists the guards. It returns false if a guard has no mutant.
func printed(guards []guard) (bool, error) {
	ok := true
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	for _, g := range guards {
		what := g.what
		if g.err != nil {
			ok, what = false, "NO MUTANT: "+g.err.Error()
		}
		fmt.Fprintf(w, "%s\t%s:%d\t%s\n", g.name, g.file, g.line, what)
	}
	return ok, w.Flush()
}

// judge runs the tests on every mutant and prints the results. It returns true if all
// mutants were killed.
func judge(ctx context.Context, root, tmp string, users map[string][]string, guards []guard) (bool, error) {
	const row = "%-18s  %-36s  %5s  %s\n"
	fmt.Printf(row, "guard", "file", "s", "killed by")
	begun := clock.System().Now()
	var (
		mu    sync.Mutex
		tried int
		dead  int
		count = map[string]int{} // killed mutants by the kind of test
		wg    sync.WaitGroup
	)
	var strange []string // what another test than the named one has killed
	code := &whole{root: root, tmp: tmp, said: map[string]error{}}
	work := make(chan int)
	for range *workers {
		wg.Go(func() {
			for i := range work {
				g, begun := guards[i], clock.System().Now()
				t := &trial{root: root, dir: filepath.Join(tmp, fmt.Sprint(i)), guard: g, users: users, whole: code}
				f := t.run(ctx)
				mu.Lock()
				tried++
				if f.killed() {
					dead++
					count[f.where]++
				}
				if w := f.stranger(g); w != "" {
					strange = append(strange, w)
				}
				fmt.Printf(row, g.name, fmt.Sprintf("%s:%d", g.file, g.line), fmt.Sprintf("%.0f", clock.System().Now().Sub(begun).Seconds()), f)
				mu.Unlock()
			}
		})
	}
	for i := range guards {
		if ctx.Err() != nil || *budget > 0 && clock.System().Now().Sub(begun) > *budget {
			break
		}
		work <- i
	}
	close(work)
	wg.Wait()
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	took := clock.System().Now().Sub(begun).Round(time.Second)
	if *budget > 0 {
		fmt.Printf("a sample of %d of %d guards, -order %d\n", tried, len(guards), *order)
	}
	fmt.Printf("%d guards taken out in %v: %d killed (%d by the test that is named for it, %d by others of the guard's package, %d by those of other packages, %d by the simulation), %d not\n",
		tried, took, dead, count[namedTest], count[ownTests], count[otherTests], count[simulation], tried-dead)
	if len(strange) > 0 {
		fmt.Println("The test that tells the counterexample should be the one that fails. Here another one does:")
		for _, w := range strange {
			fmt.Println("  " + w)
		}
	}
	return tried > 0 && tried == dead, nil
}

// module returns the folder of the module that a file belongs to. The go command must run
// in a nested module to see its packages.
func module(root, file string) string {
	dir := path.Dir(file)
	for ; dir != "."; dir = path.Dir(dir) {
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(dir), "go.mod")); err == nil {
			break
		}
	}
	return dir
}

// partOf returns the guards of a share K/N: each Nth, so that the shares take about as long as each other.
func partOf(all []guard, share string) (part []guard, err error) {
	if share == "" {
		return all, nil
	}
	var k, n int
	if _, err := fmt.Sscanf(share, "%d/%d", &k, &n); err != nil || k < 1 || k > n {
		return nil, fmt.Errorf("-share is K/N, such as 2/8, not %q", share)
	}
	for i, g := range all {
		if i%n == k-1 {
			part = append(part, g)
		}
	}
	return part, nil
}
