package house_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// This file has the rules for what the packages export.

// face are the packages that most programs use, and maxFace is how many functions,
// methods and types they may export together: the lines of "go doc -all" that begin with
// func or type.
var face = []string{"fence", "manifest", "store", "leader", "writer", "reader", "compactor"}

const maxFace = 235

// leaks are exported names that mention an internal type, with the reason.
var leaks = map[string]string{}

// unvalidated are structs called Options that have no Validate, with the reason.
var unvalidated = map[string]string{
	"leader.PruneOptions": "a part of leader.Options, which checks it",

	"store.GetOptions":    "one request: the driver checks it with the key",
	"store.ListOptions":   "one request: no value of it is wrong",
	"store.PutOptions":    "one request: no value of it is wrong",
	"store.ReadOptions":   "one request: no value of it is wrong",
	"store.UploadOptions": "one request: the driver checks it with the key",
	"store.WriteOptions":  "one request: no value of it is wrong, and Settle has its own",

	"dirstore.Options":  "no value of it is wrong",
	"memstore.Options":  "no value of it is wrong",
	"storetest.Options": "no value of it is wrong",

	"deltahooks.Options": "no value of it is wrong",
	"httpgate.Options":   "no value of it is wrong",
}

// variables are exported variables other than sentinel errors, with the reason.
var variables = map[string]string{"agentpb.File_agent_proto": "protoc-gen-go writes it"}

func internal(place string) bool { return slices.Contains(strings.Split(place, "/"), "internal") }

// export is an exported declaration of a package.
type export struct {
	place, pkg string // the package's folder and name
	name       string // of a method: that of its type too
	kind       token.Token
	typ        ast.Node // without what is not exported; nil if it is not written there
	leaks      []string // the internal types that typ mentions
}

func (e export) String() string { return e.pkg + "." + e.name }

// exports returns what a file exports. It does not see the type of a value that has only
// an initial value, and not what an unexported type passes on.
func exports(place, src string) ([]export, error) {
	file, err := parser.ParseFile(token.NewFileSet(), place, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	internals := map[string]string{} // by the name in this file
	for _, imp := range file.Imports {
		if name, err := strconv.Unquote(imp.Path.Value); err != nil {
			return nil, err
		} else if in, ok := ours(name); ok && internal(in) {
			internals[path.Base(in)] = in
		}
	}
	ast.FileExports(file)
	var all []export
	add := func(name string, kind token.Token, typ ast.Node) {
		e := export{place: place, pkg: file.Name.Name, name: name, kind: kind, typ: typ}
		if typ != nil {
			ast.Inspect(typ, func(n ast.Node) bool {
				if sel, ok := n.(*ast.SelectorExpr); ok && internals[types.ExprString(sel.X)] != "" {
					e.leaks = append(e.leaks, internals[types.ExprString(sel.X)]+"."+sel.Sel.Name)
				}
				return true
			})
		}
		all = append(all, e)
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if recv := receiver(d); recv == "" {
				add(d.Name.Name, token.FUNC, d.Type)
			} else if ast.IsExported(recv) {
				add(recv+"."+d.Name.Name, token.FUNC, d.Type)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					add(s.Name.Name, token.TYPE, s)
				case *ast.ValueSpec:
					for _, name := range s.Names {
						add(name.Name, d.Tok, s.Type)
					}
				}
			}
		}
	}
	return all, nil
}

// checkInternalTypes wants no internal type where a user of the package can meet it:
// the user could neither name the type nor read its documentation.
func checkInternalTypes(all []export, allowed map[string]string) []string {
	return except(maps.Keys(allowed), func(fault func(name, text string)) {
		for _, e := range all {
			for _, t := range e.leaks {
				fault(e.String(), "mentions "+t+", which users cannot name")
			}
		}
	})
}

// checkFace wants the packages of the face to export at most so much.
func checkFace(all []export, most int) []string {
	each, sum := map[string]int{}, 0
	for _, e := range all {
		if slices.Contains(face, e.place) && (e.kind == token.FUNC || e.kind == token.TYPE) {
			each[e.place]++
			sum++
		}
	}
	switch {
	case len(each) != len(face):
		return []string{fmt.Sprintf("only %v export something, of %v", each, face)}
	case sum > most:
		return []string{fmt.Sprintf("%d functions, methods and types are exported, %d are allowed: %v", sum, most, each)}
	}
	return nil
}

var sentinelRE = regexp.MustCompile("^Err[A-Z]")

// checkVariables wants sentinel errors and no other exported variables: any package
// could change them for all others.
func checkVariables(all []export, allowed map[string]string) []string {
	return except(maps.Keys(allowed), func(fault func(name, text string)) {
		for _, e := range all {
			if e.kind == token.VAR && !sentinelRE.MatchString(e.name) {
				fault(e.String(), "is a variable that everybody can change: make it a function or a constant")
			}
		}
	})
}

// checkOptions wants "func (o *Options) Validate() error" for each struct of options, and
// the sentinel ErrOptions in its package. Package store and its drivers have
// store.ErrInvalid instead, which is also the error of a wrong key or URL.
func checkOptions(all []export, allowed map[string]string) []string {
	return except(maps.Keys(allowed), func(fault func(name, text string)) {
		for _, e := range all {
			spec, ok := e.typ.(*ast.TypeSpec)
			if !ok || !strings.HasSuffix(e.name, "Options") {
				continue
			}
			has := func(name, typ string) bool {
				return slices.ContainsFunc(all, func(o export) bool {
					expr, _ := o.typ.(ast.Expr)
					return o.place == e.place && o.name == name && (typ == "" || types.ExprString(expr) == typ)
				})
			}
			switch _, ok := spec.Type.(*ast.StructType); {
			case !ok:
			case !has(e.name+".Validate", "func() error"):
				fault(e.String(), "has no method Validate() error; if no value of it can be wrong, say so in the table of internal/house/api_test.go")
			case !has("ErrOptions", "") && !matches("store/...", e.place):
				fault(e.String(), "has Validate, but its package has no sentinel ErrOptions")
			}
		}
	})
}

func TestHouseOfAPI(t *testing.T) {
	t.Chdir("../..")
	var all []export
	for _, f := range tree(t) {
		if f.test() || f.name == "main" || internal(f.dir()) || matchesAny(gear, f.dir()) {
			continue
		}
		more, err := exports(f.dir(), slurp(t, f.path))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, more...)
	}
	for name, faults := range map[string][]string{
		"internal types": checkInternalTypes(all, leaks), "size": checkFace(all, maxFace),
		"variables": checkVariables(all, variables), "options": checkOptions(all, unvalidated),
	} {
		t.Run(name, func(t *testing.T) { report(t, faults) })
	}
}

// TestHouseAPIRulesBite gives each rule a package that breaks it, and one that does not.
func TestHouseAPIRulesBite(t *testing.T) {
	bad := func(check func([]export) []string, place, src, says string) {
		t.Helper()
		all, err := exports(place, "package p; import \""+module+"/store/internal/secret\"\n"+src)
		if err != nil {
			t.Fatal(err)
		}
		faults := check(all)
		if says == "" && len(faults) > 0 || says != "" && (len(faults) != 1 || !strings.Contains(faults[0], says)) {
			t.Errorf("%s\nhas faults %q, want one that says %q", src, faults, says)
		}
	}
	leaks := func(all []export) []string { return checkInternalTypes(all, nil) }
	for _, src := range []string{
		"func F(secret.T) {}", "func F() (int, []*secret.T) { return 0, nil }", "func F(func(map[string]chan secret.T)) {}", "var V secret.T",
		"type A = secret.T", "type S struct{ F [2]secret.T }", "type S struct{ *secret.T }", "type S struct{}; func (*S) M(...secret.T) {}",
		"type I interface{ M(secret.T) }", "func F[A interface{ M(secret.T) }]() {}", "func F(L[secret.T]) {}", "func F(secret.G[int]) {}",
		"type S[A secret.T] struct{}", "type S[A any] struct{}; func (*S[A]) M(secret.T) {}",
	} {
		bad(leaks, "p", src, "store/internal/secret.")
	}
	bad(leaks, "p", "type S struct{ f secret.T }; func (s S) m(secret.T) {}; func f(secret.T) {}; func F(s S) { secret.F() }; const C = secret.C", "")

	size := func(most int) func([]export) []string {
		return func(all []export) []string {
			for _, p := range face[1:] {
				all = append(all, export{place: p, kind: token.TYPE})
			}
			return checkFace(all, most+len(face)-1)
		}
	}
	const four = "type T struct{}; func (*T) M() {}; func (T) m() {}; type I interface{ M() }; func New() T { return T{} }; func f() {}; const C = 1; var V int"
	bad(size(3), face[0], four, "10 functions, methods and types are exported, 9 are allowed")
	bad(size(4), face[0], four, "")
	bad(size(4), "p", four, "only map")

	vars := func(all []export) []string { return checkVariables(all, map[string]string{"p.Old": "history"}) }
	bad(vars, "p", "var Old, Default int", "p.Default is a variable")
	bad(vars, "p", "var Old, Errno int", "p.Errno is a variable")
	bad(vars, "p", "var Old int; var ErrX error; var x int; const C = 1", "")
	bad(vars, "p", "var ErrX error", "p.Old needs no exception")

	opts := func(all []export) []string { return checkOptions(all, map[string]string{"p.OldOptions": "history"}) }
	const old = "type OldOptions struct{}; "
	bad(opts, "p", old+"type Options struct{}", "p.Options has no method")
	bad(opts, "p", old+"type Options struct{}; func (*Options) Validate(int) error { return nil }; var ErrOptions error", "p.Options has no method")
	bad(opts, "p", old+"type Options struct{}; func (*Options) Validate() error { return nil }", "no sentinel")
	bad(opts, "store/p", old+"type Options struct{}; func (*Options) Validate() error { return nil }", "")
	bad(opts, "p", old+"type XOptions struct{}; func (*XOptions) Validate() error { return nil }; var ErrOptions error", "")
	bad(opts, "p", old+"type options struct{}; type FuncOptions func(); func f(options) {}", "")
	bad(opts, "p", "type OldOptions struct{}; func (*OldOptions) Validate() error { return nil }; var ErrOptions error", "p.OldOptions needs no exception")
}
