package group

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/store"
)

func retryCommand(k *kit.Kit) *cobra.Command {
	c := &cobra.Command{
		Use:   "retry [--json] URL [PARTITION...]",
		Short: "let partitions run again that their workers gave up",
		Long: `Retry makes a group forget who gave up a partition. Call it when the cause is mended. A
partition that nobody owns, because its work hung with three workers, gets an owner.
Without PARTITION it does so for all that group status calls given up. It prints those
that were given up.

It needs the rights to read and to create objects.`,
		Example: "fencepost group retry s3://bucket/orders 7",
		Args:    kit.WantArgs(1, 100_001),
		RunE: func(cmd *cobra.Command, args []string) error {
			var partitions []int
			for _, arg := range args[1:] {
				p, err := strconv.Atoi(arg)
				if err != nil {
					return kit.Usage("PARTITION %q must be a number, such as 7", arg)
				}
				partitions = append(partitions, p)
			}
			st, err := k.Store(cmd.Context(), args[0], false)
			if err != nil {
				return err
			}
			return retry(cmd.Context(), k, st, partitions)
		},
	}
	k.JSONFlag(c)
	return c
}

func retry(ctx context.Context, k *kit.Kit, st store.Store, partitions []int) error {
	again, err := group.Retry(ctx, st, partitions, nil)
	if err != nil {
		return err
	}
	text := []byte("nobody has given up such a partition\n")
	if len(again) > 0 {
		text = fmt.Appendf(nil, "%s may run again: %s\n", kit.Plural(len(again), "partition"), runs(again))
	}
	return k.Show(struct {
		Again []int `json:"again"`
	}{append([]int{}, again...)}, text)
}
