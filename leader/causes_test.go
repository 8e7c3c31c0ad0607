package leader

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	"github.com/fencepost/fencepost/internal/lease"
)

// TestEveryCauseHasItsError wants each cause of package lease to have an error of its own. A lost
// term that is called resigned would be logged at info, and no alert would count it.
func TestEveryCauseHasItsError(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../internal/lease/signal.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var causes []lease.Cause
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typ, ok := spec.Type.(*ast.Ident); ok && typ.Name == "Cause" {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			causes = append(causes, lease.Cause(text))
		}
		return true
	})
	if len(causes) < 4 {
		t.Fatalf("signal.go has the causes %q", causes)
	}
	kinds := map[error]lease.Cause{}
	for _, c := range append(causes, "unheard of") {
		e := (&Term{e: new(Elector), epoch: 1}).end(c, 0)
		known := c != "unheard of"
		if known && e.lost() != c.Lost() {
			t.Errorf("%q: the error %v is a loss: %v, the cause is one: %v", c, e, e.lost(), c.Lost())
		}
		if !errors.Is(e, ErrLost) || known == (e.Kind == ErrLost) || !known && !e.lost() { //nolint:errorlint // that one itself
			t.Errorf("%q has the error %v", c, e)
		}
		if other, dup := kinds[e.Kind]; dup {
			t.Errorf("%q has the same error as %q: %v", c, other, e)
		}
		kinds[e.Kind] = c
	}
}
