// Package man is the verb man.
package man

import (
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
)

// Command returns the verb.
func Command(k *kit.Kit) *cobra.Command {
	c := &cobra.Command{
		Use:   "man DIR",
		Short: "write manual pages",
		Long: `Man writes a manual page for each verb to a directory, which it makes if there is none.
The pages say what help says.`,
		Example: "fencepost man ~/.local/share/man/man1",
		Args:    kit.WantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // manual pages are for everybody
				return err
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true // the date of the build would differ each time
			header := &doc.GenManHeader{Section: "1", Source: root.Version, Manual: "Fencepost"}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return err
			}
			names := pageNames(root)
			if k.JSON {
				slices.Sort(names)
				return k.Print(names)
			}
			k.Console.Note("%s in %s", kit.Plural(len(names), "page"), args[0])
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
	}
	k.JSONFlag(c)
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
