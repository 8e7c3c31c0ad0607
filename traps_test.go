package fencepost_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// traps is how many published bugs of similar systems the design avoids. Each has at
// least one test that is named after it: TestT05_… in a package, T05_… in storetest.
const traps = 37

// TestHouseTraps wants a test for each of them.
func TestHouseTraps(t *testing.T) {
	named := regexp.MustCompile(`(?m)^func TestT(\d+)_|"T(\d+)_[A-Za-z]|\{"T(\d+)_`)
	found := map[int]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, "_test.go") && !strings.HasPrefix(filepath.ToSlash(path), "store/storetest/") {
			return nil
		}
		src, err := os.ReadFile(path)
		for _, m := range named.FindAllStringSubmatch(string(src), -1) {
			n, _ := strconv.Atoi(m[1] + m[2] + m[3])
			found[n] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var missing []string
	for n := 1; n <= traps; n++ {
		if !found[n] {
			missing = append(missing, fmt.Sprintf("T%d", n))
		}
	}
	if len(missing) > 0 {
		t.Errorf("no test is named after %s", strings.Join(missing, ", "))
	}
}
