package kit

import (
	"strings"

	"github.com/spf13/cobra"
)

// schemes are how URLs begin, for completion.
var schemes = []string{"s3://", "gs://", "az://", "file:///"}

// CompleteURL completes the first argument of a verb, and the second of append by the names
// of files.
func CompleteURL(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if cmd.Name() == "append" && len(args) == 1 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	if strings.Contains(typed, "://") {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return schemes, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
}

// CompleteFlag offers the values of a flag that has only a few.
func CompleteFlag(c *cobra.Command, flag string, values ...string) {
	if err := c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // there is no such flag, or this was done twice
	}
}
