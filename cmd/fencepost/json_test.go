package main

import (
	"bytes"
	"encoding/json"
	"flag"
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
	"path/filepath"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

var writePage = flag.Bool("write", false, "write docs/json.md and docs/assets/schema.json")

// printers says which function prints the JSON of which verbs.
var printers = map[string]string{
	"append/append.go:run":              "append",
	"backup/backup.go:Backup":           "backup, restore",
	"backup/backup.go:Restore":          "backup, restore",
	"commit/commit.go:show":             "commit",
	"compact/compact.go:compact":        "compact --watch",
	"compact/compact.go:plan":           "compact --dry-run",
	"compact/compact.go:once":           "compact",
	"doctor/doctor.go:Command":          "doctor",
	"files/files.go:print":              "files",
	"gate/gate.go:setCommand":           "gate set",
	"gate/gate.go:getCommand":           "gate get",
	"group/group.go:statusCommand":      "group status",
	"group/drain.go:drain":              "group drain",
	"group/retry.go:retry":              "group retry",
	"history/history.go:Command":        "history",
	"initlog/initlog.go:Init":           "init",
	"initlog/initlog.go:filesMoved":     "init --files-moved",
	"initlog/probe.go:Probe":            "probe",
	"lag/lag.go:Command":                "lag",
	"serve/watching.go:serving":         "serve",
	"man/man.go:Command":                "man",
	"pin/pin.go:pinned":                 "pin",
	"pin/pin.go:Unpin":                  "unpin",
	"pin/pin.go:Pins":                   "pins",
	"publish/publish.go:printPublished": "publish, published",
	"publish/publish.go:publishing":     "publish --watch",
	"publish/publish.go:Unpublish":      "unpublish",
	"cat/records.go:encodeJSON":         "cat",
	"status/status.go:logStatus":        "status",
	"status/status.go:lockStatus":       "status, where there is only a lock",
	"stepdown/stepdown.go:Command":      "step-down",
	"truncate/truncate.go:plan":         "truncate --dry-run",
	"truncate/truncate.go:begins":       "truncate",
	"verify/verify.go:Command":          "verify",
}

// verbTypes type-checks the packages of all verbs without their tests, and returns their files by package and name.
func verbTypes(t *testing.T) (*types.Info, map[string]*ast.File) {
	t.Helper()
	const verbs = "./internal/verb/..."
	list := func(args ...string) string {
		c := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...)
		var errs bytes.Buffer
		c.Stderr = &errs
		out, err := c.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, &errs)
		}
		return strings.TrimSpace(string(out))
	}
	args := []string{"-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}"}
	if b, ok := debug.ReadBuildInfo(); ok && slices.Contains(b.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race") // so that nothing is compiled that is not there yet
	}
	exports := map[string]string{}
	for line := range strings.Lines(list(append(args, verbs)...)) {
		pkg, file, _ := strings.Cut(strings.TrimSpace(line), "=")
		exports[pkg] = file
	}
	fset := token.NewFileSet()
	byName := map[string]*ast.File{}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	for line := range strings.Lines(list("-f", `{{.Dir}} {{join .GoFiles " "}}`, verbs)) {
		fields := strings.Fields(line)
		var files []*ast.File
		for _, name := range fields[1:] {
			f, err := parser.ParseFile(fset, filepath.Join(fields[0], name), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
			byName[filepath.Base(fields[0])+"/"+name] = f
		}
		if _, err := conf.Check(fields[0], fset, files, info); err != nil {
			t.Fatal(err)
		}
	}
	return info, byName
}

// jsonSchema is one of JSON Schema, as far as it is needed here.
type jsonSchema struct {
	Type       any                    `json:"type,omitempty"` // a name, or names
	Format     string                 `json:"format,omitempty"`
	Encoding   string                 `json:"contentEncoding,omitempty"`
	Properties map[string]*jsonSchema `json:"properties,omitempty"`
	Required   []string               `json:"required,omitempty"`
	Items      *jsonSchema            `json:"items,omitempty"`
	Values     *jsonSchema            `json:"additionalProperties,omitempty"`

	name  string   // of the type
	order []string // of the properties
}

// schemaOf returns what encoding/json makes of a type.
func schemaOf(t *testing.T, typ types.Type) *jsonSchema {
	t.Helper()
	if n, ok := types.Unalias(typ).(*types.Named); ok {
		switch name := n.Obj().Pkg().Path() + "." + n.Obj().Name(); {
		case name == "time.Time":
			return &jsonSchema{Type: "string", Format: "date-time"}
		case name == "encoding/json.RawMessage":
			return &jsonSchema{}
		default:
			methods := types.NewMethodSet(types.NewPointer(n))
			if methods.Lookup(n.Obj().Pkg(), "MarshalText") != nil {
				return &jsonSchema{Type: "string"}
			}
			if methods.Lookup(n.Obj().Pkg(), "MarshalJSON") != nil {
				t.Fatalf("%s marshals itself: say here what it makes", name)
			}
		}
	}
	switch u := typ.Underlying().(type) {
	case *types.Pointer:
		return orNull(schemaOf(t, u.Elem()))
	case *types.Slice:
		if b, ok := u.Elem().Underlying().(*types.Basic); ok && b.Kind() == types.Byte {
			return orNull(&jsonSchema{Type: "string", Encoding: "base64"})
		}
		return orNull(&jsonSchema{Type: "array", Items: schemaOf(t, u.Elem())})
	case *types.Map:
		return orNull(&jsonSchema{Type: "object", Values: schemaOf(t, u.Elem())})
	case *types.Interface:
		return &jsonSchema{}
	case *types.Basic:
		switch {
		case u.Info()&types.IsString != 0:
			return &jsonSchema{Type: "string"}
		case u.Info()&types.IsInteger != 0:
			return &jsonSchema{Type: "integer"}
		case u.Info()&types.IsFloat != 0:
			return &jsonSchema{Type: "number"}
		case u.Info()&types.IsBoolean != 0:
			return &jsonSchema{Type: "boolean"}
		}
	case *types.Struct:
		s := &jsonSchema{Type: "object", Properties: map[string]*jsonSchema{}}
		if n, ok := types.Unalias(typ).(*types.Named); ok {
			s.name = strings.TrimSuffix(strings.ToLower(n.Obj().Name()), "doc")
		}
		s.add(t, u)
		return s
	}
	t.Fatalf("what does encoding/json make of %s?", typ)
	return nil
}

// add adds the fields of a struct.
func (s *jsonSchema) add(t *testing.T, u *types.Struct) {
	t.Helper()
	for i := range u.NumFields() {
		f := u.Field(i)
		name, opts, _ := strings.Cut(reflect.StructTag(u.Tag(i)).Get("json"), ",")
		if name == "-" || !f.Exported() && !f.Embedded() {
			continue
		}
		if f.Embedded() && name == "" {
			typ := f.Type()
			if p, ok := typ.(*types.Pointer); ok {
				typ = p.Elem()
			}
			s.add(t, typ.Underlying().(*types.Struct))
			continue
		}
		if name == "" {
			name = f.Name()
		}
		field := schemaOf(t, f.Type())
		if strings.Contains(opts, "omit") {
			field.Type = notNull(field.Type)
		} else if !slices.Contains(s.Required, name) {
			s.Required = append(s.Required, name)
		}
		if s.Properties[name] == nil {
			s.order = append(s.order, name)
		}
		s.Properties[name] = field
	}
}

// orNull adds null, which a nil pointer, slice or map is.
func orNull(s *jsonSchema) *jsonSchema {
	if name, ok := s.Type.(string); ok {
		s.Type = []string{name, "null"}
	}
	return s
}

func notNull(names any) any {
	if names, ok := names.([]string); ok {
		return names[0]
	}
	return names
}

// rows adds the paths of a schema's values to paths, by their type. A name with a "?" may be missing. Shapes that
// have a name count as one value.
func (s *jsonSchema) rows(path string, shapes map[string]string, paths map[string][]string) {
	kind := "any"
	switch {
	case notNull(s.Type) == "object" && s.Values != nil:
		s.Values.rows(path+".*", shapes, paths)
		return
	case notNull(s.Type) == "object":
		if kind = shapes[s.shape()]; kind == "" || path == "" {
			for _, name := range s.order {
				mark := "?"
				if slices.Contains(s.Required, name) {
					mark = ""
				}
				s.Properties[name].rows(strings.TrimPrefix(path+"."+name+mark, "."), shapes, paths)
			}
			return
		}
	case notNull(s.Type) == "array":
		s.Items.rows(path+"[]", shapes, paths)
		return
	case s.Encoding+s.Format != "":
		kind = strings.Replace(s.Encoding+s.Format, "date-time", "time", 1)
	case s.Type != nil:
		kind = fmt.Sprint(notNull(s.Type))
	}
	paths[kind] = append(paths[kind], path)
}

// shape is what tells two objects apart.
func (s *jsonSchema) shape() string {
	b, err := json.Marshal(s)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(s.name, strings.ReplaceAll(string(b), `["object","null"]`, `"object"`))
}

// shared adds the objects that are in several places, by what tells them apart.
func (s *jsonSchema) shared(seen map[string]int, all map[string]*jsonSchema) {
	if s.Properties != nil && s.name != "" {
		seen[s.shape()]++
		all[s.shape()] = s
	}
	if s.Items != nil {
		s.Items.shared(seen, all)
	}
	if s.Values != nil {
		s.Values.shared(seen, all)
	}
	for _, p := range s.Properties {
		p.shared(seen, all)
	}
}

// section describes a schema to people: the names of values of each type.
func (s *jsonSchema) section(shapes map[string]string) string {
	var b strings.Builder
	paths := map[string][]string{}
	s.rows("", shapes, paths)
	for _, kind := range slices.Sorted(maps.Keys(paths)) {
		fmt.Fprintf(&b, "%s: %s\n", kind, strings.Join(paths[kind], ", "))
	}
	return b.String()
}

// fault says where a value is not what the schema says.
func (s *jsonSchema) fault(at string, v any) string {
	kinds, _ := s.Type.([]string)
	if name, ok := s.Type.(string); ok {
		kinds = []string{name}
	}
	is := func(kind string) bool { return s.Type == nil || slices.Contains(kinds, kind) }
	ok := false
	switch v := v.(type) {
	case nil:
		ok = is("null")
	case bool:
		ok = is("boolean")
	case string:
		ok = is("string")
	case float64:
		ok = is("number") || is("integer") && v == float64(int64(v))
	case []any:
		ok = is("array")
		for _, e := range v {
			if s.Items != nil {
				if f := s.Items.fault(at+"[]", e); f != "" {
					return f
				}
			}
		}
	case map[string]any:
		ok = is("object")
		for _, name := range s.Required {
			if _, there := v[name]; !there {
				return at + "." + name + " is missing"
			}
		}
		for name, e := range v {
			of := s.Values
			if s.Properties != nil {
				of = s.Properties[name]
			}
			if of == nil && s.Type != nil {
				return at + "." + name + " is unknown"
			}
			if of != nil {
				if f := of.fault(at+"."+name, e); f != "" {
					return f
				}
			}
		}
	}
	if !ok {
		return fmt.Sprintf("%s is %v, not %v", at, v, s.Type)
	}
	return ""
}

// schemas returns the schema of each verb's JSON, from the types that are printed.
func schemas(t *testing.T) map[string]*jsonSchema {
	t.Helper()
	info, files := verbTypes(t)
	all, used := map[string]*jsonSchema{}, map[string]bool{}
	for name, f := range files {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				c, ok := n.(*ast.CallExpr)
				if !ok || len(c.Args) == 0 {
					return true
				}
				s, ok := c.Fun.(*ast.SelectorExpr)
				if !ok || !slices.Contains([]string{"Print", "Show", "PrintLine", "PrintRound", "Encode"}, s.Sel.Name) {
					return true
				}
				typ, place := info.Types[c.Args[0]].Type, name+":"+fn.Name.Name
				verb := printers[place]
				if used[place] = true; verb == "" {
					t.Errorf("%s prints %s: say in printers for which verb", place, typ)
					return true
				}
				sc := schemaOf(t, typ)
				sc.Type = notNull(sc.Type)
				all[verb] = sc
				return true
			})
		}
	}
	for place := range printers {
		if !used[place] {
			t.Errorf("%s prints nothing: delete it from printers", place)
		}
	}
	return all
}

// TestJSONPage: docs/json.md and docs/assets/schema.json are what the verbs print.
// go test -run TestJSONPage -write writes them.
func TestJSONPage(t *testing.T) {
	all := schemas(t)
	var b strings.Builder
	b.WriteString(`# JSON output

<!-- Written by TestJSONPage in cmd/fencepost: go test -run TestJSONPage -write -->

Every verb that prints something of its own takes ` + "`--json`" + `. Data goes to standard output, and everything else to standard error. Below are the names of each verb by type;
[JSON Schema](assets/schema.json) has the same for programs.

- ` + "`a.b`" + ` is a member of an object, ` + "`a[]`" + ` an element of an array, and ` + "`a.*`" + ` a member of any name. A name with "?" is left out if it has no value.
- An empty array or object may be ` + "`null`" + `. A later version may add names, and changes none.
- Times are in RFC 3339. Bytes are numbers. Lengths of time are texts such as "15s", unless the name has a unit.
- ` + "`cat`" + ` and all verbs with ` + "`--watch`" + ` print one line for each value.
`)
	seen, objects, verbs, shapes := map[string]int{}, map[string]*jsonSchema{}, map[string][]string{}, map[string]string{}
	for _, verb := range slices.Sorted(maps.Keys(all)) {
		verbs[all[verb].shape()] = append(verbs[all[verb].shape()], verb)
	}
	for _, same := range verbs {
		all[same[0]].shared(seen, objects)
	}
	for shape, n := range seen {
		if n > 1 {
			shapes[shape] = objects[shape].name
		}
	}
	for _, verb := range slices.Sorted(maps.Keys(all)) {
		if same := verbs[all[verb].shape()]; same[0] == verb {
			fmt.Fprintf(&b, "\n## %s\n\n```text\n%s```\n", strings.Join(same, ", "), all[verb].section(shapes))
		}
	}
	b.WriteString("\n## Objects of several verbs\n")
	for _, shape := range slices.SortedFunc(maps.Keys(shapes), func(x, y string) int { return strings.Compare(shapes[x], shapes[y]) }) {
		fmt.Fprintf(&b, "\n**%s**\n\n```text\n%s```\n", shapes[shape], objects[shape].section(shapes))
	}
	var doc strings.Builder // a line for each verb
	doc.WriteString(`{"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "What the verbs of fencepost print with --json", "$defs": {`)
	for i, verb := range slices.Sorted(maps.Keys(all)) {
		def, err := json.Marshal(all[verb])
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&doc, "%s\n%q: %s", strings.Repeat(",", min(i, 1)), verb, def)
	}
	doc.WriteString("\n}}\n")
	for file, want := range map[string]string{"../../docs/json.md": b.String(), "../../docs/assets/schema.json": doc.String()} {
		if *writePage {
			if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%s is not what the verbs print (%v): go test -run TestJSONPage -write", file, err)
		}
	}
}

// TestJSONSchemas runs the verbs, and what they print fits their schemas.
func TestJSONSchemas(t *testing.T) {
	all := schemas(t)
	url, dir := newLog(t, memURL(t)), fileURL(t)
	leadAlone(t, url+"-lock", "ann")
	check := func(verb, out string) {
		d := json.NewDecoder(strings.NewReader(out))
		n := 0
		for ; d.More(); n++ {
			var v any
			if err := d.Decode(&v); err != nil {
				t.Errorf("%s: %v in %s", verb, err, out)
				return
			}
			if f := all[verb].fault(verb, v); f != "" {
				t.Errorf("%s in %s", f, out)
			}
		}
		if n == 0 {
			t.Errorf("%s prints nothing", verb)
		}
	}
	for _, c := range []struct{ verb, in, args string }{
		{"append", "a\nb\n", "append --cursor --source s " + url},
		{"append", "c\n", "append " + url},
		{"commit", "", "commit --cursor c " + url + " " + parquetFile(t, 1)},
		{"cat", "", "cat " + url},
		{"cat", "", "cat --exact " + url},
		{"status", "", "status --objects " + url},
		{"lag", "", "lag --at 1 " + url},
		{"history", "", "history " + url},
		{"compact --dry-run", "", "compact --dry-run " + url},
		{"compact", "", "compact " + url},
		{"status", "", "status " + url},
		{"files", "", "files " + url},
		{"pin", "", "pin --name p " + url},
		{"pins", "", "pins " + url},
		{"unpin", "", "unpin p " + url},
		{"truncate --dry-run", "", "truncate --dry-run --before 1 " + url},
		{"truncate", "", "truncate --before 1 " + url},
		{"doctor", "", "doctor " + url},
		{"verify", "", "verify " + url},
		{"publish, published", "", "publish " + url},
		{"step-down", "", "step-down " + url},
		{"status, where there is only a lock", "", "status " + url + "-lock"},
		{"history", "", "history " + url + "-lock"},
		{"doctor", "", "doctor " + url + "-lock"},
		{"backup, restore", "", "backup " + url + " " + url + "-copy"},
		{"backup, restore", "", "restore " + url + "-copy " + url + "-again"},
		{"gate set", "v", "gate set --epoch 3 " + url + "-gate name -"},
		{"gate get", "", "gate get " + url + "-gate name"},
		{"init", "", "init " + dir},
		{"probe", "", "probe " + dir},
		{"man", "", "man " + t.TempDir()},
	} {
		r := run(t, c.in, append(strings.Fields(c.args), "--json")...)
		if r.status > 1 || r.out == "" { // a doctor may find something
			t.Errorf("%s: status %d: %s", c.args, r.status, r.err)
			continue
		}
		check(c.verb, r.out)
	}
}

// TestJSONNames: what the verbs print has names_like_this, and not those of Go.
func TestJSONNames(t *testing.T) {
	var walk func(verb string, s *jsonSchema)
	walk = func(verb string, s *jsonSchema) {
		if s == nil {
			return
		}
		for name, field := range s.Properties {
			if name != strings.ToLower(name) {
				t.Errorf("%s prints %q", verb, name)
			}
			walk(verb, field)
		}
		walk(verb, s.Items)
	}
	for verb, s := range schemas(t) {
		walk(verb, s)
	}
}

// TestSchemasBite: what does not fit is found.
func TestSchemasBite(t *testing.T) {
	s := &jsonSchema{Type: "object", Required: []string{"a"}, Properties: map[string]*jsonSchema{
		"a": {Type: "integer"}, "b": {Type: []string{"array", "null"}, Items: &jsonSchema{Type: "string"}},
	}}
	for doc, says := range map[string]string{
		`{"a": 1}`: "", `{"a": 1, "b": null}`: "", `{"a": 1, "b": ["x"]}`: "", `{"a": 1.5}`: "x.a is 1.5", `{"a": "1"}`: "x.a is 1",
		`{}`: "x.a is missing", `{"a": 1, "c": 2}`: "x.c is unknown", `{"a": 1, "b": [2]}`: "x.b[] is 2", `[]`: "x is []", `{"a": null}`: "x.a is",
	} {
		var v any
		if err := json.Unmarshal([]byte(doc), &v); err != nil {
			t.Fatal(err)
		}
		if f := s.fault("x", v); (f == "") != (says == "") || !strings.Contains(f, says) {
			t.Errorf("%s: %q, want %q", doc, f, says)
		}
	}
}
