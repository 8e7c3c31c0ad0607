package fencepost_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
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
	"store.GetOptions":    "one request: the driver checks it with the key",
	"store.ListOptions":   "one request: no value of it is wrong",
	"store.PutOptions":    "one request: no value of it is wrong",
	"store.ReadOptions":   "one request: no value of it is wrong",
	"store.UploadOptions": "one request: the driver checks it with the key",
	"store.WriteOptions":  "one request: no value of it is wrong, and Settle has its own",

	"dirstore.Options":  "no value of it is wrong",
	"memstore.Options":  "no value of it is wrong",
	"storetest.Options": "no value of it is wrong",
}

// variables are exported variables other than sentinel errors, with the reason.
var variables = map[string]string{}

// inModule returns the place of a package in the tree, and whether it is in the tree.
func inModule(pkg *types.Package) (string, bool) {
	if pkg == nil {
		return "", false
	}
	return ours(pkg.Path())
}

func internal(place string) bool { return slices.Contains(strings.Split(place, "/"), "internal") }

// exports calls f with everything that a package exports at its top level.
func exports(pkg *types.Package, f func(obj types.Object)) {
	for _, name := range pkg.Scope().Names() {
		if obj := pkg.Scope().Lookup(name); obj.Exported() {
			f(obj)
		}
	}
}

// methods returns the exported methods that are declared for a type.
func methods(obj types.Object) (all []*types.Func) {
	if named, ok := obj.Type().(*types.Named); ok && obj == named.Obj() {
		for m := range named.Methods() {
			if m.Exported() {
				all = append(all, m)
			}
		}
	}
	return all
}

// checkInternalTypes wants no internal type where a user of the package can meet it:
// the user could neither name the type nor read its documentation.
func checkInternalTypes(pkgs []*types.Package, allowed map[string]string) []string {
	return except(maps.Keys(allowed), func(fault func(name, text string)) {
		for _, pkg := range pkgs {
			exports(pkg, func(obj types.Object) {
				w := mentions{seen: map[types.Type]bool{}}
				w.declared(obj)
				for _, t := range w.internal {
					fault(pkg.Name()+"."+obj.Name(), "mentions "+t+", which users cannot name")
				}
			})
		}
	})
}

// mentions collects the internal types that can be reached from a declaration.
type mentions struct {
	seen     map[types.Type]bool
	internal []string
}

// declared walks a declaration with its methods.
func (w *mentions) declared(obj types.Object) {
	if name, ok := obj.(*types.TypeName); ok {
		for _, m := range methods(obj) {
			w.typ(m.Type())
		}
		if alias, ok := name.Type().(*types.Alias); ok {
			w.typ(alias.Rhs())
		} else {
			w.typ(name.Type().Underlying())
		}
		return
	}
	w.typ(obj.Type())
}

func (w *mentions) typ(t types.Type) {
	if w.seen[t] {
		return
	}
	w.seen[t] = true
	switch t := t.(type) {
	case *types.Named:
		w.named(t.Obj(), t.TypeArgs())
	case *types.Alias:
		w.named(t.Obj(), t.TypeArgs())
	case *types.Pointer:
		w.typ(t.Elem())
	case *types.Slice:
		w.typ(t.Elem())
	case *types.Array:
		w.typ(t.Elem())
	case *types.Chan:
		w.typ(t.Elem())
	case *types.Map:
		w.typ(t.Key())
		w.typ(t.Elem())
	case *types.Signature:
		for v := range t.Params().Variables() {
			w.typ(v.Type())
		}
		for v := range t.Results().Variables() {
			w.typ(v.Type())
		}
		for p := range t.TypeParams().TypeParams() {
			w.typ(p.Constraint())
		}
	case *types.Struct:
		for f := range t.Fields() {
			if f.Exported() || f.Embedded() {
				w.typ(f.Type())
			}
		}
	case *types.Interface:
		for m := range t.Methods() {
			if m.Exported() {
				w.typ(m.Type())
			}
		}
	}
}

func (w *mentions) named(obj *types.TypeName, args *types.TypeList) {
	for a := range args.Types() {
		w.typ(a)
	}
	place, ok := inModule(obj.Pkg())
	switch {
	case !ok:
	case internal(place):
		w.internal = append(w.internal, place+"."+obj.Name())
	case !obj.Exported(): // its methods and fields can be used all the same
		w.declared(obj)
	}
}

// checkFace wants the packages to export at most so much.
func checkFace(pkgs []*types.Package, most int) []string {
	var each []string
	sum := 0
	for _, pkg := range pkgs {
		n := 0
		exports(pkg, func(obj types.Object) {
			switch obj.(type) {
			case *types.Func:
				n++
			case *types.TypeName:
				n += 1 + len(methods(obj))
			}
		})
		sum += n
		each = append(each, fmt.Sprintf("%s %d", pkg.Name(), n))
	}
	if sum > most {
		return []string{fmt.Sprintf("%d functions, methods and types are exported, %d are allowed: %s", sum, most, strings.Join(each, ", "))}
	}
	return nil
}

// checkVariables wants sentinel errors and no other exported variables: any package
// could change them for all others.
func checkVariables(pkgs []*types.Package, allowed map[string]string) []string {
	return except(maps.Keys(allowed), func(fault func(name, text string)) {
		for _, pkg := range pkgs {
			exports(pkg, func(obj types.Object) {
				if _, ok := obj.(*types.Var); ok && !isSentinel(obj) {
					fault(pkg.Name()+"."+obj.Name(), "is a variable that everybody can change: make it a function or a constant")
				}
			})
		}
	})
}

// checkOptions wants "func (o *Options) Validate() error" for each struct of options, and
// the sentinel ErrOptions in its package. Package store and its drivers have
// store.ErrInvalid instead, which is also the error of a wrong key or URL.
func checkOptions(pkgs []*types.Package, allowed map[string]string) []string {
	return except(maps.Keys(allowed), func(fault func(name, text string)) {
		for _, pkg := range pkgs {
			exports(pkg, func(obj types.Object) {
				if _, ok := obj.(*types.TypeName); !ok || !strings.HasSuffix(obj.Name(), "Options") || !isStruct(obj.Type()) {
					return
				}
				name := pkg.Name() + "." + obj.Name()
				place, _ := inModule(pkg)
				m, _, _ := types.LookupFieldOrMethod(types.NewPointer(obj.Type()), true, pkg, "Validate")
				switch sentinel := pkg.Scope().Lookup("ErrOptions"); {
				case m == nil || types.TypeString(m.Type(), nil) != "func() error":
					fault(name, "has no method Validate() error; if no value of it can be wrong, say so in the table of house_api_test.go")
				case (sentinel == nil || !isSentinel(sentinel)) && !matches("store/...", place):
					fault(name, "has Validate, but its package has no sentinel ErrOptions")
				}
			})
		}
	})
}

func isSentinel(obj types.Object) bool {
	err := types.Universe.Lookup("error").Type().Underlying().(*types.Interface)
	return strings.HasPrefix(obj.Name(), "Err") && types.Implements(obj.Type(), err)
}

func isStruct(t types.Type) bool {
	_, ok := t.Underlying().(*types.Struct)
	return ok
}

// publicPackages returns the packages of this module that others can import, from the
// compiler's own data.
func publicPackages(t *testing.T) (all []*types.Package) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-export", "-f", "{{.ImportPath}} {{.Name}} {{.Export}}", "./...")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &errs)
	}
	files := map[string]string{}
	var public []string
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue // unsafe has no file
		}
		files[f[0]] = f[2]
		if place, ok := ours(f[0]); ok && f[1] != "main" && !internal(place) && !matches("integration/...", place) {
			public = append(public, f[0])
		}
	}
	imp := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
	for _, p := range public {
		pkg, err := imp.Import(p)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, pkg)
	}
	return all
}

func theFace(pkgs []*types.Package) []*types.Package {
	return slices.DeleteFunc(slices.Clone(pkgs), func(p *types.Package) bool {
		place, _ := inModule(p)
		return !slices.Contains(face, place)
	})
}

func TestHouseOfAPI(t *testing.T) {
	pkgs := publicPackages(t)
	seven := theFace(pkgs)
	if len(seven) != len(face) {
		t.Fatalf("packages %v of %v", seven, face)
	}
	for name, faults := range map[string][]string{
		"internal types": checkInternalTypes(pkgs, leaks), "size": checkFace(seven, maxFace),
		"variables": checkVariables(pkgs, variables), "options": checkOptions(pkgs, unvalidated),
	} {
		t.Run(name, func(t *testing.T) { report(t, faults) })
	}
}

// compiled is a package made from source, which may import those before it.
func compiled(t *testing.T, place, src string, before ...*types.Package) *types.Package {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "a.go", "package "+path.Base(place)+"\n"+src, 0)
	if err != nil {
		t.Fatal(err)
	}
	pkg, err := (&types.Config{Importer: known(before)}).Check(module+"/"+place, fset, []*ast.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return pkg
}

type known []*types.Package

func (k known) Import(path string) (*types.Package, error) {
	for _, p := range k {
		if p.Path() == path {
			return p, nil
		}
	}
	return nil, fmt.Errorf("no package %s", path)
}

// TestHouseAPIRulesBite gives each rule a package that breaks it, and one that does not.
func TestHouseAPIRulesBite(t *testing.T) {
	secret := compiled(t, "store/internal/secret", "type T struct{}; type G[A any] struct{}; func (T) M() {}")
	head := "import \"" + secret.Path() + "\"\n"
	bad := func(check func([]*types.Package) []string, src, says string) {
		t.Helper()
		place := "p"
		if strings.Contains(src, "// in store") {
			place = "store/p"
		}
		faults := check([]*types.Package{compiled(t, place, src, secret)})
		if says == "" && len(faults) > 0 || says != "" && (len(faults) != 1 || !strings.Contains(faults[0], says)) {
			t.Errorf("%s\nhas faults %q, want one that says %q", src, faults, says)
		}
	}
	leaks := func(pkgs []*types.Package) []string { return checkInternalTypes(pkgs, nil) }
	for _, src := range []string{
		"func F(secret.T) {}", "func F() (int, []*secret.T) { return 0, nil }", "func F(func(map[string]chan secret.T)) {}", "var V secret.T",
		"type A = secret.T", "type S struct{ F [2]secret.T }", "type S struct{ secret.T }", "type S struct{}; func (*S) M(...secret.T) {}",
		"type I interface{ M(secret.T) }", "func F[A interface{ M(secret.T) }]() {}", "type own struct{}; func (own) M(secret.T) {}; func New() own { return own{} }",
		"type own struct{ F secret.T }; type S struct { own }", "type L[A any] struct{}; func F(L[secret.T]) {}", "func F(secret.G[int]) {}",
	} {
		bad(leaks, head+src, "store/internal/secret.")
	}
	bad(leaks, head+"type S struct{ f secret.T }; func (s S) m(secret.T) {}; func f(secret.T) {}; func F(s S) { f(s.f); s.m(s.f) }; type I interface{ m(secret.T) }", "")

	two := func(most int) func([]*types.Package) []string {
		return func(pkgs []*types.Package) []string { return checkFace(pkgs, most) }
	}
	const four = "type T struct{}; func (*T) M() {}; func (T) m() {}; type I interface{ M() }; func New() T { return T{} }; func f() {}; const C = 1; var V int"
	bad(two(3), four, "4 functions, methods and types are exported, 3 are allowed: p 4")
	bad(two(4), four, "")

	vars := func(pkgs []*types.Package) []string {
		return checkVariables(pkgs, map[string]string{"p.Old": "history"})
	}
	bad(vars, "var Old, Default int", "p.Default is a variable")
	bad(vars, "var Old, Errno int", "p.Errno is a variable")
	bad(vars, "var Old int; var ErrX error; var x int; const C = 1", "")
	bad(vars, "var ErrX error", "p.Old needs no exception")

	opts := func(pkgs []*types.Package) []string {
		return checkOptions(pkgs, map[string]string{"p.OldOptions": "history"})
	}
	const old = "type OldOptions struct{}; "
	bad(opts, old+"type Options struct{}", "p.Options has no method")
	bad(opts, old+"type Options struct{}; func (*Options) Validate(int) error { return nil }; var ErrOptions error", "p.Options has no method")
	bad(opts, old+"type Options struct{}; func (*Options) Validate() error { return nil }", "no sentinel")
	bad(opts, old+"type Options struct{}; func (*Options) Validate() error { return nil } // in store", "")
	bad(opts, old+"type XOptions struct{}; func (*XOptions) Validate() error { return nil }; var ErrOptions error", "")
	bad(opts, old+"type options struct{}; type FuncOptions func(); func f(options) {}", "")
	bad(opts, "type OldOptions struct{}; func (*OldOptions) Validate() error { return nil }; var ErrOptions error", "p.OldOptions needs no exception")
}
