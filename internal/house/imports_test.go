package house_test

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

// This file has the rules for imports of ours; those for other modules are in .ci/golangci.yml. A change that needs a new
// import between two packages of the project changes the table below, on purpose and in review.

const module = "github.com/fencepost/fencepost"

// anything lets a package import the whole project. It is for the few packages that put
// the parts together.
const anything = "..."

// public stands for every package of the core that is not internal.
const public = "public"

// room says which packages of the project the non-test files of a package may import. A
// name that ends in "/..." stands for a package and all packages below it.
type room struct {
	pkg  string
	may  []string
	only map[string][]string // by imported package: the files that may import it
}

// top is the folder of a row without what is below it.
func (r room) top() string { return strings.TrimSuffix(r.pkg, "/...") }

// rooms lists all packages from the ground floor up. A package may import only packages
// that stand before it in this list. The first row that matches a package counts.
var rooms = []room{
	// The ground floor: types that all packages share. None does I/O.
	{pkg: "clock"},
	{pkg: "fence"},
	{pkg: "sink", may: []string{"clock", "fence"}}, // what all log through
	{pkg: "internal/layout", may: []string{"fence"}},
	{pkg: "store/document", may: []string{"fence", "internal/layout"}}, // checked JSON objects of any store
	{pkg: "internal/frame", may: []string{"fence", "internal/layout"}},

	{pkg: "internal/release/..."}, // tools, and a module of its own
	{pkg: "internal/tools/..."},

	// The store and its drivers know nothing of logs.
	{pkg: "store", may: []string{"clock"}},
	{pkg: "store/internal/cloud", may: []string{"store", "clock"}},
	{pkg: "store/gcsstore/examples/...", may: []string{anything}},
	{pkg: "store/internal/chase", may: []string{"store"}},
	{pkg: "store/probe", may: []string{"clock", "store", "store/internal/chase", "store/internal/cloud"}},
	{pkg: "store/contact", may: []string{"clock", "store"}},
	{pkg: "store/storetest", may: []string{"clock", "store", "store/internal/chase"}},
	{pkg: "store/internal/cloud/cloudtest", may: []string{"store", "store/internal/cloud", "store/probe", "store/storetest"}}, // test gear
	{pkg: "store/...", may: []string{"store", "clock", "store/internal/cloud", "sink"}},

	// What users of a store log about it.
	{pkg: "internal/outage", may: []string{"clock", "store", "store/contact", "sink"}},

	// The election never imports the log.
	{pkg: "internal/lease", may: []string{"clock", "fence", "store"}}, // it names versions of the store and sends no request
	{pkg: "leader", may: []string{"clock", "fence", "store", "internal/lease", "internal/layout", "store/document", "store/contact", "internal/outage", "sink"}},

	// A register is one small object. It knows tokens, and no log.
	{pkg: "register", may: []string{"clock", "fence", "store", "store/document", "internal/layout"}},

	// Kubernetes' elections, on a store. client-go is large, so it is a module of its own.
	{pkg: "kubelock", may: []string{"clock", "fence", "store", "register", "store/document", "internal/layout"}},

	// The log, from its description to its users. A writer accepts a token from anywhere,
	// so it never imports leader. A reader never imports writer.
	{pkg: "internal/files", may: []string{"fence", "store", "store/probe", "internal/layout", "store/document"}},
	{pkg: "manifest", may: []string{"clock", "fence", "store", "store/probe", "internal/layout", "store/document", "internal/files"}},
	{pkg: "internal/chain", may: []string{"clock", "fence", "store", "internal/layout", "internal/frame"}},
	{pkg: "internal/segment", may: []string{"fence", "store", "internal/layout", "internal/frame"}},
	{pkg: "internal/state", may: []string{"clock", "fence", "store", "manifest", "internal/layout", "store/document", "internal/files", "internal/frame"}},
	{pkg: "internal/takeover", may: []string{"clock", "fence", "store", "manifest", "internal/layout", "internal/frame", "internal/chain", "internal/state"}},
	{pkg: "writer", may: []string{"clock", "fence", "store", "manifest", "internal/layout", "internal/frame", "internal/chain", "internal/state", "internal/takeover", "internal/outage", "sink"}},
	{pkg: "reader", may: []string{"clock", "fence", "store", "register", "manifest", "internal/layout", "internal/frame", "internal/chain", "internal/segment", "internal/state"}},
	{
		pkg: "compactor", may: []string{"clock", "fence", "store", "manifest", "leader", "internal/layout", "internal/frame", "internal/chain", "internal/segment", "internal/state", "internal/outage", "sink"},
		// A compactor with a token from elsewhere needs no election. So only Run has one,
		// and the options its settings.
		only: map[string][]string{"leader": {"run*.go", "options.go"}},
	},
	{pkg: "verify", may: []string{"clock", "fence", "store", "register", "manifest", "leader", "internal/layout", "internal/frame", "internal/chain", "internal/segment", "internal/state"}}, // it reads objects of every kind
	{pkg: "inspect", may: []string{"fence", "store", "manifest", "internal/layout", "internal/frame", "internal/chain", "internal/state"}},

	// These packages put the parts together, and test gear may import everything.
	{pkg: ".", may: []string{anything}},

	// Extensions are modules of their own. They import public packages, and nothing in the core imports them. What is
	// internal to an extension knows even less.
	{pkg: "ext/group/internal/assign", may: []string{"fence"}},
	{pkg: "ext/group/internal/member", may: []string{"clock", "fence", "store", "ext/group/internal/assign"}}, // it names versions of the store and sends no request
	{pkg: "ext/group", may: []string{"clock", "fence", "store", "store/probe", "store/contact", "store/document", "manifest", "writer", "compactor", "verify", "sink", "ext/group/internal/assign", "ext/group/internal/member"}},
	{pkg: "ext/group/grouptest", may: []string{"clock", "fence", "store", "store/...", "ext/group"}}, // test gear
	{pkg: "ext/delta/examples/...", may: []string{anything}},
	{pkg: "ext/...", may: []string{public, "ext/..."}},

	{pkg: "internal/test"}, // how much tests try, and what decoders take
	{pkg: "internal/test/...", may: []string{anything}},

	// So is the command line: the largest user of the library tests its public face. No verb imports another one, and
	// what several need is in the kit.
	{pkg: "cmd/fencepost/internal/survey", may: []string{public, "ext/..."}},
	{pkg: "cmd/fencepost/internal/outside", may: []string{public, "ext/...", "cmd/fencepost/internal/survey"}},
	{pkg: "cmd/fencepost/internal/page", may: []string{public, "cmd/fencepost/internal/outside"}},
	{pkg: "cmd/fencepost/internal/doctor", may: []string{public, "ext/...", "cmd/fencepost/internal/survey"}},
	{pkg: "cmd/fencepost/internal/backup", may: []string{public, "ext/..."}},
	{pkg: "cmd/fencepost/internal/feed", may: []string{public}},
	{pkg: "cmd/fencepost/internal/supervise", may: []string{public}},
	{pkg: "cmd/fencepost/internal/kit", may: []string{public, "ext/...", "cmd/fencepost/internal/survey"}},
	{
		pkg: "cmd/fencepost/internal/verb/...", may: []string{
			public, "ext/...", "cmd/fencepost/internal/kit", "cmd/fencepost/internal/survey", "cmd/fencepost/internal/outside", "cmd/fencepost/internal/page",
			"cmd/fencepost/internal/doctor", "cmd/fencepost/internal/backup", "cmd/fencepost/internal/feed", "cmd/fencepost/internal/supervise",
		},
	},
	{pkg: "cmd/fencepost", may: []string{public, "ext/...", "cmd/fencepost/internal/kit", "cmd/fencepost/internal/verb/..."}},

	{pkg: "examples/...", may: []string{anything}},
	{pkg: "integration/...", may: []string{anything}},
	{pkg: "bench/...", may: []string{anything}},
}

// matches reports whether pattern stands for pkg.
func matches(pattern, pkg string) bool {
	switch pattern {
	case anything:
		return true
	case public:
		return !slices.Contains(strings.Split(pkg, "/"), "internal") && !strings.HasPrefix(pkg, "ext/")
	}
	if above, ok := strings.CutSuffix(pattern, "/..."); ok {
		return pkg == above || strings.HasPrefix(pkg, above+"/")
	}
	return pattern == pkg
}

func matchesAny(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, pkg) })
}

// ours returns the folder of an imported package if it belongs to the project.
func ours(imp string) (pkg string, ok bool) {
	if imp == module {
		return ".", true
	}
	return strings.CutPrefix(imp, module+"/")
}

func checkImports(files []source) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	for _, f := range files {
		if f.test() {
			continue // a test may import everything
		}
		row := slices.IndexFunc(rooms, func(r room) bool { return matches(r.pkg, f.dir()) })
		if row < 0 {
			fault("%s: package %s has no row in the table of internal/house/imports_test.go: say what it may import", f.path, f.dir())
			continue
		}
		r := rooms[row]
		for _, imp := range f.imports {
			pkg, ok := ours(imp)
			if !ok {
				continue
			}
			if strings.HasPrefix(pkg, "ext/") && slices.Contains([]string{".", "internal/test"}, r.top()) {
				fault("%s imports %s: the root module may not import an extension", f.path, pkg)
				continue
			}
			// "internal/..." does not stand for the test gear.
			if !matchesAny(r.may, pkg) || (strings.HasPrefix(pkg, "internal/test/") && !slices.Contains(r.may, anything)) {
				fault("%s imports %s: %s may import %s of the project", f.path, pkg, r.pkg, list(r.may))
			}
			fits := func(pattern string) bool {
				ok, err := path.Match(pattern, f.base())
				return ok && err == nil
			}
			if patterns, ok := r.only[pkg]; ok && !slices.ContainsFunc(patterns, fits) {
				fault("%s imports %s: in %s only %s may", f.path, pkg, r.pkg, strings.Join(patterns, ", "))
			}
		}
	}
	return faults
}

func list(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return "only " + strings.Join(names, ", ")
}

// TestHouseFloors wants each package to import only packages that stand before it in the
// list. So the list is an order in which the code can be read.
func TestHouseFloors(t *testing.T) {
	below := map[string]bool{}
	for _, r := range rooms {
		for _, pkg := range r.may {
			if pkg != anything && pkg != public && pkg != r.pkg && !below[pkg] {
				t.Errorf("%s may import %s, which does not stand below it", r.pkg, pkg)
			}
		}
		below[r.pkg] = true
	}
}

func TestHouseOfImports(t *testing.T) {
	t.Chdir("../..")
	report(t, checkImports(tree(t)))
}

// at returns a file for a made-up tree.
func at(file string, imports ...string) source {
	pkg := path.Base(path.Dir(file))
	return source{path: file, name: pkg, comment: "Package " + pkg + " does.", imports: imports}
}

// TestHouseImportRulesBite gives each rule a tree that breaks it.
func TestHouseImportRulesBite(t *testing.T) {
	for name, c := range map[string]struct {
		file source
		says string
	}{
		"fence imports the project":       {at("fence/a.go", module+"/store"), "fence may import nothing"},
		"store imports the log":           {at("store/a.go", module+"/manifest"), "store may import only clock"},
		"a driver imports another":        {at("store/s3store/a.go", module+"/store/probe"), "store/... may"},
		"leader imports manifest":         {at("leader/a.go", module+"/manifest"), "leader may import"},
		"leader imports the chain":        {at("leader/a.go", module+"/internal/chain"), "leader may import"},
		"writer imports leader":           {at("writer/a.go", module+"/leader"), "writer may import"},
		"reader imports writer":           {at("reader/a.go", module+"/writer"), "reader may import"},
		"manifest imports reader":         {at("manifest/a.go", module+"/reader"), "manifest may import"},
		"compactor elects outside run.go": {at("compactor/plan.go", module+"/leader"), "only run*.go"},
		"a part imports the root":         {at("writer/a.go", module), "writer may import"},
		"internal imports leader":         {at("internal/chain/a.go", module+"/leader"), "internal/chain may import"},
		"a part imports the simulation":   {at("writer/a.go", module+"/internal/test/sim"), "internal/test/sim"},
		"a package without a row":         {at("shiny/a.go"), "no row"},
		"an extension imports the inside": {at("ext/lock/a.go", module+"/internal/frame"), "ext/... may import"},
		"an extension imports test gear":  {at("ext/lock/a.go", module+"/internal/test/fixture"), "ext/... may import"},
		"the command line does":           {at("cmd/fencepost/a.go", module+"/internal/state"), "cmd/fencepost may import"},
		"a part of it does":               {at("cmd/fencepost/internal/survey/a.go", module+"/internal/layout"), "cmd/fencepost/internal/survey may import"},
		"a verb imports another one":      {at("cmd/fencepost/internal/verb/lag/a.go", module+"/cmd/fencepost/internal/verb/cat"), "cmd/fencepost/internal/verb/... may import"},
		"the core imports an extension":   {at("verify/a.go", module+"/ext/group"), "verify may import"},
		"the root imports an extension":   {at("run.go", module+"/ext/group"), "an extension"},
	} {
		if faults := checkImports([]source{c.file}); len(faults) != 1 || !strings.Contains(faults[0], c.says) {
			t.Errorf("%s: got %q, want one fault that says %q", name, faults, c.says)
		}
	}
	sound := []source{
		at("ext/lock/a.go", module+"/register", module+"/store/document", module+"/ext/group"),
		at("ext/lock/a_test.go", module+"/internal/test/fixture"),
		at("fence/doc.go"),
		at("compactor/run_lock.go", module+"/leader", module+"/fence"),
		at("leader/doc_test.go", module+"/writer"),
		at("store/s3store/doc.go", module+"/store"),
		at("cmd/fencepost/main.go", module+"/leader", module, module+"/ext/group", module+"/cmd/fencepost/internal/verb/cat"),
		at("cmd/fencepost/main_test.go", module+"/internal/test/fixture"),
	}
	if faults := checkImports(sound); len(faults) != 0 {
		t.Errorf("a sound tree has faults: %q", faults)
	}
}

// TestHouseLightParts: a program that uses only an election, or only the contract of
// stores, links neither compression nor an SDK.
func TestHouseLightParts(t *testing.T) {
	t.Chdir("../..")
	for _, pkg := range []string{"clock", "fence", "store", "leader", "manifest"} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "./"+pkg).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, heavy := range []string{"github.com/klauspost/", "github.com/aws/", module + "/internal/frame"} {
			if strings.Contains(string(out), heavy) {
				t.Errorf("%s links %s", pkg, heavy)
			}
		}
	}
}

// Each option Logger is resolved by sink.Logger, so that no work waits for its log: also where none is given.
func TestHouseOfLoggers(t *testing.T) {
	t.Chdir("../..")
	for _, s := range tree(t) {
		if strings.HasSuffix(s.path, "_test.go") || strings.HasPrefix(s.path, "cmd/") || strings.HasPrefix(s.path, "sink/") {
			continue
		}
		if b, err := os.ReadFile(s.path); err != nil {
			t.Error(err)
		} else if strings.Contains(string(b), "zap.NewNop()") {
			t.Errorf("%s: resolve a Logger with sink.Logger, not with zap.NewNop", s.path)
		} else if strings.Contains(string(b), "= sink.FromSlog(") && !strings.Contains(string(b), "sink.Logger(") {
			t.Errorf("%s: pass the default of a Logger to sink.Logger", s.path)
		}
	}
}
