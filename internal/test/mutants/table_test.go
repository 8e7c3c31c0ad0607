package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// The page of the guards is what the code says.
func TestPageIsCurrent(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	all, err := find(root)
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	if want := table(all); !bytes.Equal(have, want) {
		t.Errorf("%s is not what the comments say: make guards", page)
	}
	for _, g := range all {
		if g.why == "" {
			t.Errorf("%s:%d: guard %s does not say why it is there", g.file, g.line, g.name)
		}
	}
}
