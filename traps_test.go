package fencepost_test

import (
	"fmt"
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
	for _, f := range tree(t) {
		if !f.test() && f.dir() != "store/storetest" {
			continue
		}
		for _, m := range named.FindAllStringSubmatch(slurp(t, f.path), -1) {
			n, _ := strconv.Atoi(m[1] + m[2] + m[3])
			found[n] = true
		}
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
