package lake

import (
	"bufio"
	"bytes"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// attributes runs tests of package delta. It returns the numbers that they state with testing.T.Attr, by
// test and key.
func attributes(t *testing.T, run string, args ...string) map[string]float64 {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"test", "-C", "../../ext/delta", "-count=1", "-v", "-run", run, "."}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	all, err := stated(out)
	if err != nil || len(all) == 0 {
		t.Fatalf("%v: %d numbers, %v\n%s", cmd.Args, len(all), err, out)
	}
	return all
}

// stated returns the attributes in what a test has printed.
func stated(out []byte) (map[string]float64, error) {
	all := map[string]float64{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) != 5 || f[0] != "===" || f[1] != "ATTR" {
			continue
		}
		v, err := strconv.ParseFloat(f[4], 64)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", lines.Text(), err)
		}
		all[f[2]+" "+f[3]] = v
	}
	return all, nil
}

// of returns a number that must be there.
func of(t *testing.T, all map[string]float64, key string) float64 {
	t.Helper()
	v, ok := all[key]
	if !ok {
		t.Fatalf("no test states %q: %v", key, all)
	}
	return v
}
