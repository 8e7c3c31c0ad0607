package main

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/store"
)

// Whatever the arguments are: nothing panics, no store is asked for under a name that
// was not given, and the exit status is one of those that the help names.
func FuzzArguments(f *testing.F) {
	for _, args := range []string{
		"", "help", "-v", "append --cursor --format frames mem://x", "cat --from 7 --follow mem://x", "cat --json --from 1 --to 2 --since 2026-01-02T03:04:05Z --until 1h mem://x",
		"compact --watch --dry-run --retain-age 7d mem://x", "truncate --before 9 mem://x", "files --at 3 mem://x", "pin --name a --ttl 5m mem://x", "pins mem://x", "unpin mem://x a",
		"verify mem://x", "status --json mem://x", "init --max-record 1KiB mem://x", "probe mem://x", "step-down mem://x", "--version", "cat --from=99999999999999999999 mem://x",
	} {
		f.Add(strings.ReplaceAll(args, " ", "\n"))
	}
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Split(line, "\n")
		var out, errs buffer
		a := &kit.Kit{In: strings.NewReader(""), Out: &out, Err: &errs, Open: func(_ context.Context, raw string) (store.Store, error) {
			if !strings.Contains(line, raw) {
				t.Errorf("%q opens %q", args, raw)
			}
			if _, err := url.Parse(raw); err != nil {
				return nil, err
			}
			return nil, &store.Error{Op: "open", Key: "x", Kind: store.ErrInvalid}
		}}
		if status := runWith(t.Context(), a, args); status != 0 && status != 1 && status != 64 && status != 65 && status != 66 && status != 69 {
			t.Errorf("%q: status %d\n%s", args, status, errs.String())
		} else if status != 0 && errs.String() == "" {
			t.Errorf("%q: status %d, and not a word", args, status)
		}
	})
}
