package house_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// keyRooms are where keys and prefixes are defined.
var keyRooms = []string{"internal/layout", "ext/group", "ext/group/internal/member"}

// keyGear is what may write keys again: users of the library could not do otherwise.
var keyGear = []string{"internal/test/...", "bench/...", "integration/...", "examples/...", "ext/delta/examples/..."}

// keyAgain are literals that are written again, with the reason. If a key changes in one place only,
// its entry here is not needed any more, and the test says so.
var keyAgain = map[string]string{
	`store/probe has "tmp/"`:                               "stores know nothing of logs",
	`ext/delta has "file/"`:                                "delta uses what users of the library have",
	`cmd/fencepost/internal/backup has "backup.json"`:      "the core only keeps the name free for it",
	`store/storetest has "lock/00000000000000000001.json"`: "an odd key, which any store must take",
}

// constants returns the values of a file's string constants that are literals and constants joined with
// plus. Known are those of the other files.
func constants(file *ast.File, known map[string]string) {
	var value func(ast.Expr) (string, bool)
	value = func(e ast.Expr) (string, bool) {
		switch e := e.(type) {
		case *ast.BasicLit:
			s, err := strconv.Unquote(e.Value)
			return s, err == nil && e.Kind == token.STRING
		case *ast.Ident:
			s, ok := known[e.Name]
			return s, ok
		case *ast.BinaryExpr:
			x, ok1 := value(e.X)
			y, ok2 := value(e.Y)
			return x + y, ok1 && ok2
		}
		return "", false
	}
	for _, d := range file.Decls {
		d, ok := d.(*ast.GenDecl)
		if !ok || d.Tok != token.CONST {
			continue
		}
		for _, s := range d.Specs {
			s := s.(*ast.ValueSpec)
			for i, name := range s.Names {
				if i < len(s.Values) {
					if v, ok := value(s.Values[i]); ok {
						known[name.Name] = v
					}
				}
			}
		}
	}
}

// checkKeys wants no literal outside of the rooms of keys that is one of these, or begins with one of their
// prefixes. sources are the texts of files, by path.
func checkKeys(sources map[string]string, allowed map[string]string) ([]string, error) {
	fset, parsed := token.NewFileSet(), map[string]*ast.File{}
	keys := map[string]bool{}
	for file, src := range sources {
		f, err := parser.ParseFile(fset, file, src, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		parsed[file] = f
	}
	for _, room := range keyRooms {
		known := map[string]string{}
		for range 2 { // a constant may stand before one that it is made of
			for file, f := range parsed {
				if path.Dir(file) == room {
					constants(f, known)
				}
			}
		}
		for _, v := range known {
			if name, isJSON := strings.CutSuffix(v, ".json"); strings.Contains(v, "/") || isJSON && name != "" {
				keys[v] = true
			}
		}
	}
	return except(maps.Keys(allowed), func(fault func(name, text string)) {
		for _, file := range slices.Sorted(maps.Keys(parsed)) {
			dir := path.Dir(file)
			if slices.Contains(keyRooms, dir) || matchesAny(keyGear, dir) {
				continue
			}
			ast.Inspect(parsed[file], func(n ast.Node) bool {
				lit, ok := n.(*ast.BasicLit)
				if !ok || lit.Kind != token.STRING {
					return true
				}
				s, err := strconv.Unquote(lit.Value)
				for key := range keys {
					if err == nil && (s == key || strings.HasSuffix(key, "/") && strings.HasPrefix(s, key) && !strings.Contains(s, " ")) {
						fault(fmt.Sprintf("%s has %q", dir, s), fmt.Sprintf("in %s: use the constant or the function of %v", fset.Position(lit.Pos()), keyRooms))
						break
					}
				}
				return true
			})
		}
	}), nil
}

func TestHouseOfKeys(t *testing.T) {
	t.Chdir("../..")
	sources := map[string]string{}
	for _, f := range tree(t) {
		if !f.test() {
			sources[f.path] = slurp(t, f.path)
		}
	}
	faults, err := checkKeys(sources, keyAgain)
	if err != nil {
		t.Fatal(err)
	}
	report(t, faults)
}

func TestHouseKeysBite(t *testing.T) {
	layout := map[string]string{
		"internal/layout/a.go":           `package layout; const DeltaPrefix = FilePrefix + "log/"; const FormatKey, Kind = "format.json", "lock"`,
		"internal/layout/b.go":           `package layout; const FilePrefix = "file/"; const suffix = ".json"`,
		"ext/group/internal/member/k.go": `package member; const Prefix = "group/"; const FormatKey = Prefix + "group.json"`,
	}
	for src, want := range map[string]string{
		`"file/"`:              `writer has "file/"`,
		`"file/x"`:             `writer has "file/x"`,
		`"file/log/"`:          `writer has "file/log/"`,
		`"format.json"`:        `writer has "format.json"`,
		"`group/group.json`":   `writer has "group/group.json"`,
		`"lock", ".json", "a"`: "",
		`"file/ is a prefix"`:  "",
		`"profile/"`:           "",
	} {
		sources := maps.Clone(layout)
		sources["writer/a.go"] = "package writer; var x = []string{" + src + "}"
		sources["examples/x/a.go"] = sources["writer/a.go"]
		faults, err := checkKeys(sources, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(faults, "\n"); (want == "") != (got == "") || !strings.HasPrefix(got, want) || len(faults) > 1 {
			t.Errorf("%s has faults %q, want %q", src, got, want)
		}
		if want == "" {
			continue
		}
		if faults, err := checkKeys(sources, map[string]string{want: "history"}); err != nil || len(faults) > 0 {
			t.Errorf("%s is allowed: %q, %v", src, faults, err)
		}
	}
	if faults, err := checkKeys(layout, map[string]string{`delta has "file/"`: "history"}); err != nil || len(faults) != 1 || !strings.Contains(faults[0], "needs no exception") {
		t.Errorf("an exception in vain: %q, %v", faults, err)
	}
}
