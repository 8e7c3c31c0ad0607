package main

import (
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func (a *app) manCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "man DIR",
		Short: "write manual pages",
		Long: `Man writes a manual page for each verb to a directory, which it makes if there is none.
The pages say what help says.`,
		Example: "fencepost man ~/.local/share/man/man1",
		Args:    wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // manual pages are for everybody
				return err
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true // the date of the build would differ each time
			header := &doc.GenManHeader{Section: "1", Source: strings.TrimSpace(version()), Manual: "Fencepost"}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return err
			}
			names := pageNames(root)
			if a.json {
				slices.Sort(names)
				return a.print(names)
			}
			a.con.note("%s in %s", plural(len(names), "page"), args[0])
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
	}
	a.jsonFlag(c)
	return c
}

// pageNames returns the names of the pages that doc.GenManTree writes for c and the commands below it.
func pageNames(c *cobra.Command) (names []string) {
	for _, below := range c.Commands() {
		if below.IsAvailableCommand() && !below.IsAdditionalHelpTopicCommand() {
			names = append(names, pageNames(below)...)
		}
	}
	return append(names, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1")
}

// schemes are how URLs begin, for completion.
var schemes = []string{"s3://", "gs://", "az://", "file:///"}

// completeURL completes the first argument of a verb, and the second of append by the names
// of files.
func completeURL(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if cmd.Name() == "append" && len(args) == 1 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	if strings.Contains(typed, "://") {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return schemes, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
}

// completeFlag offers the values of a flag that has only a few.
func completeFlag(c *cobra.Command, flag string, values ...string) {
	if err := c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // there is no such flag, or this was done twice
	}
}
