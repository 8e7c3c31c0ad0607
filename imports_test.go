package fencepost_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// This file is the plan of the house: which room may know of which. A change
// that needs a new door changes the table below, on purpose and in review.

const module = "github.com/fencepost/fencepost"

// anything lets a package import all of the project: the few that put the parts
// together.
const anything = "..."

// room says what the non-test files of a package may import of the project. A
// name that ends in "/..." stands for a package and all below it.
type room struct {
	pkg  string
	may  []string
	only map[string][]string // an import that only files of these patterns may have
}

// rooms, from the ground floor up: a package may import only what stands before it in
// this list. The first row that fits a package counts.
var rooms = []room{
	// The ground: words that all share, without any I/O.
	{pkg: "clock"},
	{pkg: "fence"},
	{pkg: "internal/layout", may: []string{"fence"}},
	{pkg: "internal/document", may: []string{"fence"}},
	{pkg: "internal/frame", may: []string{"fence", "internal/layout"}},

	// The store and its drivers know nothing of logs.
	{pkg: "store", may: []string{"clock"}},
	{pkg: "store/internal/cloud", may: []string{"store"}},
	{pkg: "store/gcsstore/examples/...", may: []string{anything}},
	{pkg: "store/probe", may: []string{"clock", "store"}},
	{pkg: "store/storetest", may: []string{"store"}},
	{pkg: "store/internal/cloud/cloudtest", may: []string{"store", "store/internal/cloud", "store/probe", "store/storetest"}}, // test gear
	{pkg: "store/...", may: []string{"store", "clock", "store/internal/cloud"}},

	// Election never knows the log.
	{pkg: "internal/lease", may: []string{"clock", "store"}}, // names of versions, no requests
	{pkg: "leader", may: []string{"clock", "fence", "store", "internal/lease", "internal/layout"}},

	// The log, from its description to those who use it. A writer takes its token from
	// anywhere, so it never imports leader; a reader never imports writer.
	{pkg: "manifest", may: []string{"clock", "fence", "store", "store/probe", "internal/layout", "internal/document"}},
	{pkg: "internal/chain", may: []string{"fence", "store", "internal/layout", "internal/frame"}},
	{pkg: "internal/segment", may: []string{"fence", "store", "internal/layout", "internal/frame"}},
	{pkg: "internal/state", may: []string{"clock", "fence", "store", "manifest", "internal/layout", "internal/document", "internal/frame"}},
	{pkg: "internal/takeover", may: []string{"clock", "fence", "store", "manifest", "internal/layout", "internal/frame", "internal/chain", "internal/state"}},
	{pkg: "writer", may: []string{"clock", "fence", "store", "manifest", "internal/layout", "internal/frame", "internal/chain", "internal/state", "internal/takeover"}},
	{pkg: "reader", may: []string{"clock", "fence", "store", "manifest", "internal/layout", "internal/frame", "internal/chain", "internal/segment", "internal/state"}},
	{
		pkg: "compactor", may: []string{"clock", "fence", "store", "manifest", "leader", "internal/layout", "internal/frame", "internal/chain", "internal/segment", "internal/state"},
		// Its own election is for Run alone, and its settings are among the options;
		// with a token from elsewhere it needs none.
		only: map[string][]string{"leader": {"run*.go", "options.go"}},
	},
	{pkg: "verify", may: []string{"clock", "fence", "store", "manifest", "leader", "internal/layout", "internal/frame", "internal/chain", "internal/segment", "internal/state"}}, // it looks at all there is

	// These put all together, and test gear may look at everything.
	{pkg: ".", may: []string{anything}},
	{pkg: "internal/testkit/...", may: []string{anything}},
	{pkg: "cmd/...", may: []string{anything}},
	{pkg: "examples/...", may: []string{anything}},
	{pkg: "integration/...", may: []string{anything}},
	{pkg: "bench/...", may: []string{anything}},
}

// strangers are imports from outside that only some packages may have, tests
// included.
var strangers = []struct {
	prefix string
	in     []string
	why    string
}{
	{"github.com/aws/", []string{"store/s3store", "integration/...", "bench/..."}, "types of the S3 SDK stop at s3store"},
	{"cloud.google.com/", []string{"store/gcsstore", "integration/...", "bench/..."}, "types of the Google SDK stop at gcsstore"},
	{"github.com/Azure/", []string{"store/azurestore", "integration/...", "bench/..."}, "types of the Azure SDK stop at azurestore"},
	{"github.com/minio/minio", nil, "MinIO's server is AGPL: it is run, never linked"},
}

// vague are names that say nothing about what a package is for.
var vague = []string{"config", "util", "utils", "types", "common", "log", "metrics", "retry", "helpers", "misc"}

// maxLines is the length at which a file wants splitting.
const maxLines = 600

// source is a Go file of the tree.
type source struct {
	path    string // with slashes, from the root
	name    string // of its package
	imports []string
	comment string // of its package clause
	lines   int
}

func (s source) dir() string  { return path.Dir(s.path) }
func (s source) test() bool   { return strings.HasSuffix(s.path, "_test.go") }
func (s source) base() string { return path.Base(s.path) }

// matches reports whether pkg is what pattern says, or below it.
func matches(pattern, pkg string) bool {
	if pattern == anything {
		return true
	}
	if above, ok := strings.CutSuffix(pattern, "/..."); ok {
		return pkg == above || strings.HasPrefix(pkg, above+"/")
	}
	return pattern == pkg
}

func matchesAny(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, pkg) })
}

// ours returns the place of an import in the tree.
func ours(imp string) (pkg string, ok bool) {
	if imp == module {
		return ".", true
	}
	return strings.CutPrefix(imp, module+"/")
}

func checkImports(files []source) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	for _, f := range files {
		for _, imp := range f.imports {
			for _, s := range strangers {
				if strings.HasPrefix(imp, s.prefix) && !matchesAny(s.in, f.dir()) {
					fault("%s imports %s: %s", f.path, imp, s.why)
				}
			}
		}
		if f.test() {
			continue // a test may put together what it tests
		}
		row := slices.IndexFunc(rooms, func(r room) bool { return matches(r.pkg, f.dir()) })
		if row < 0 {
			fault("%s: package %s has no row in the table of imports_test.go: say what it may import", f.path, f.dir())
			continue
		}
		r := rooms[row]
		for _, imp := range f.imports {
			pkg, ok := ours(imp)
			if !ok {
				continue
			}
			// The simulation contains the whole house: "all of internal" is not that.
			if !matchesAny(r.may, pkg) || (strings.HasPrefix(pkg, "internal/testkit/") && !slices.Contains(r.may, anything)) {
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

func checkNames(files []source) (faults []string) {
	for _, f := range files {
		for _, bad := range vague {
			if slices.Contains(strings.Split(f.dir(), "/"), bad) || f.name == bad || f.name == bad+"_test" {
				faults = append(faults, fmt.Sprintf("%s: a package called %q says nothing: name it after what it holds", f.path, bad))
			}
		}
	}
	return faults
}

func checkSizes(files []source) (faults []string) {
	for _, f := range files {
		if !f.test() && f.lines > maxLines {
			faults = append(faults, fmt.Sprintf("%s has %d lines; past %d a file wants splitting", f.path, f.lines, maxLines))
		}
	}
	return faults
}

// checkComments wants one package comment in each package, in doc.go or in the
// file that has the package's name (main.go for a command).
func checkComments(files []source) (faults []string) {
	found := map[string][]string{}
	names := map[string]string{}
	for _, f := range files {
		if f.test() {
			continue
		}
		names[f.dir()] = f.name
		if f.comment == "" {
			continue
		}
		found[f.dir()] = append(found[f.dir()], f.path)
		if f.base() != "doc.go" && f.base() != f.name+".go" {
			faults = append(faults, fmt.Sprintf("%s: the package comment belongs in doc.go", f.path))
		}
		if want := "Package " + f.name + " "; f.name != "main" && !strings.HasPrefix(f.comment, want) {
			faults = append(faults, fmt.Sprintf("%s: the package comment must begin with %q", f.path, want))
		}
	}
	for dir := range names {
		if n := len(found[dir]); n != 1 {
			faults = append(faults, fmt.Sprintf("package %s has %d package comments %v, want one", dir, n, found[dir]))
		}
	}
	slices.Sort(faults)
	return faults
}

// tree reads all Go files, those of nested modules included.
func tree(t *testing.T) []source {
	t.Helper()
	var files []source
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := p != "." && strings.HasPrefix(d.Name(), ".")
		if d.IsDir() && (hidden || d.Name() == "testdata" || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if d.IsDir() || hidden || !strings.HasSuffix(p, ".go") {
			return nil
		}
		src, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), p, src, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		files = append(files, read(filepath.ToSlash(p), file, bytes.Count(src, []byte("\n"))))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func read(p string, file *ast.File, lines int) source {
	s := source{path: p, name: file.Name.Name, comment: file.Doc.Text(), lines: lines}
	for _, imp := range file.Imports {
		if name, err := strconv.Unquote(imp.Path.Value); err == nil {
			s.imports = append(s.imports, name)
		}
	}
	return s
}

// TestHouseFloors: no room may import one that stands above it, so that the list above
// is the order in which a stranger can read the code.
func TestHouseFloors(t *testing.T) {
	below := map[string]bool{}
	for _, r := range rooms {
		for _, pkg := range r.may {
			if pkg != anything && pkg != r.pkg && !below[pkg] {
				t.Errorf("%s may import %s, which does not stand below it", r.pkg, pkg)
			}
		}
		below[r.pkg] = true
	}
}

func TestHouseOfPackages(t *testing.T) {
	files := tree(t)
	for name, check := range map[string]func([]source) []string{
		"imports": checkImports, "names": checkNames, "sizes": checkSizes, "comments": checkComments,
	} {
		t.Run(name, func(t *testing.T) {
			for _, fault := range check(files) {
				t.Error(fault)
			}
		})
	}
}

// TestHouseRulesBite gives each rule a tree that breaks it.
func TestHouseRulesBite(t *testing.T) {
	at := func(file string, imports ...string) source {
		pkg := path.Base(path.Dir(file))
		return source{path: file, name: pkg, comment: "Package " + pkg + " does.", imports: imports}
	}
	bad := map[string]struct {
		check func([]source) []string
		file  source
		says  string
	}{
		"fence imports the project":         {checkImports, at("fence/a.go", module+"/store"), "fence may import nothing"},
		"store imports the log":             {checkImports, at("store/a.go", module+"/manifest"), "store may import only clock"},
		"a driver imports another":          {checkImports, at("store/s3store/a.go", module+"/store/probe"), "store/... may"},
		"leader imports manifest":           {checkImports, at("leader/a.go", module+"/manifest"), "leader may import"},
		"leader imports the chain":          {checkImports, at("leader/a.go", module+"/internal/chain"), "leader may import"},
		"writer imports leader":             {checkImports, at("writer/a.go", module+"/leader"), "writer may import"},
		"reader imports writer":             {checkImports, at("reader/a.go", module+"/writer"), "reader may import"},
		"manifest imports reader":           {checkImports, at("manifest/a.go", module+"/reader"), "manifest may import"},
		"compactor elects outside run.go":   {checkImports, at("compactor/plan.go", module+"/leader"), "only run*.go"},
		"a part imports the root":           {checkImports, at("writer/a.go", module), "writer may import"},
		"internal imports leader":           {checkImports, at("internal/chain/a.go", module+"/leader"), "internal/chain may import"},
		"a part imports the simulation":     {checkImports, at("writer/a.go", module+"/internal/testkit/sim"), "internal/testkit/sim"},
		"a package without a row":           {checkImports, at("shiny/a.go"), "no row"},
		"the SDK outside s3store":           {checkImports, at("writer/a.go", "github.com/aws/aws-sdk-go-v2/aws"), "stop at s3store"},
		"the SDK in a test outside":         {checkImports, at("writer/a_test.go", "github.com/aws/aws-sdk-go-v2/aws"), "stop at s3store"},
		"MinIO linked":                      {checkImports, at("integration/a.go", "github.com/minio/minio/cmd"), "AGPL"},
		"a vague package":                   {checkNames, at("internal/util/a.go"), `"util"`},
		"a vague folder":                    {checkNames, at("internal/common/thing/a.go"), `"common"`},
		"a long file":                       {checkSizes, source{path: "writer/a.go", lines: maxLines + 1}, "splitting"},
		"no package comment":                {checkComments, source{path: "writer/a.go", name: "writer"}, "0 package comments"},
		"a package comment in a wrong file": {checkComments, at("writer/append.go"), "belongs in doc.go"},
		"a comment that does not say whose": {checkComments, source{path: "writer/doc.go", name: "writer", comment: "Writes."}, "must begin"},
	}
	for name, c := range bad {
		t.Run(name, func(t *testing.T) {
			faults := c.check([]source{c.file})
			if len(faults) != 1 || !strings.Contains(faults[0], c.says) {
				t.Errorf("got %q, want one fault that says %q", faults, c.says)
			}
		})
	}
	good := []source{
		at("fence/doc.go"),
		at("compactor/run_lock.go", module+"/leader", module+"/fence"),
		at("leader/doc_test.go", module+"/writer"),
		at("store/s3store/doc.go", "github.com/aws/aws-sdk-go-v2/aws", module+"/store"),
		{path: "cmd/fencepost/main.go", name: "main", comment: "Fencepost does.", imports: []string{module + "/leader", module}, lines: maxLines},
	}
	good[1].comment = ""
	if faults := append(append(checkImports(good), checkNames(good)...), checkSizes(good)...); len(faults) != 0 {
		t.Errorf("a sound tree has faults: %q", faults)
	}
}
