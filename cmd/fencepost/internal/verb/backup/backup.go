// Package backup has the verbs backup and restore.
package backup

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/backup"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/probe"
)

// copying is what backup and restore have in common.
type copying struct {
	noVerify bool
	copy     func(ctx context.Context, from, to store.Store, o *backup.Options) (*backup.Report, error)
}

// Backup returns the verb.
func Backup(k *kit.Kit) *cobra.Command {
	p := &copying{copy: backup.Make}
	c := &cobra.Command{
		Use:   "backup [--files URL] [--no-verify] [--json] URL DESTINATION",
		Short: "copy a log to another place, while it is in use",
		Long: `Backup copies a log to DESTINATION, another URL, and checks the copy. The log may be in
use meanwhile: a pin holds a version of it, and everything acknowledged before backup
began is in the copy.

If backup is interrupted, the same command goes on. The pin stays until a backup is
complete. To give up, delete DESTINATION and remove the pin (fencepost pins, fencepost
unpin). If DESTINATION holds a complete backup of the same log, it is brought up to
date: only what is new is copied. Until that is done, restore takes what was complete
before. What is damaged in DESTINATION is copied again, unless --no-verify is set.

DESTINATION must not lie within the log's place, nor around it.

If the log keeps the files of its table in a store of their own, --files names that
store. The files go to DESTINATION too, so that the backup is one place.

It needs the rights of a reader, and to write to DESTINATION.`,
		Example: "fencepost backup s3://bucket/orders s3://backups/orders",
		Args:    kit.WantArgs(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := k.LogStore(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			k.PassedOver(args[0])
			to, err := k.Store(cmd.Context(), args[1], true)
			if err != nil {
				return err
			}
			r, err := p.run(cmd.Context(), k, from, to, nil)
			if err != nil {
				return err
			}
			return k.Show(r, fmt.Appendf(nil, "backed up version %d: %s; %s\n", r.Version, kit.RecordRange(r.First, r.End), p.said(r)))
		},
	}
	p.flags(k, c)
	return c
}

// Restore returns the verb.
func Restore(k *kit.Kit) *cobra.Command {
	p := &copying{copy: backup.Restore}
	c := &cobra.Command{
		Use:   "restore [--files URL] [--no-verify] [--json] BACKUP URL",
		Short: "copy a backup to an empty place, as a log to work with",
		Long: `Restore copies a backup to URL, where there must be no log, and checks it. Only then it
becomes a log. If it is interrupted, or the copy is damaged, the same command goes on. The
backup stays as it is. URL must not lie within the backup's place, nor around it.

First it probes URL, as init does, since the store may be another one than that of the
original. So it takes some seconds more.

The restored log has the identity of its original, and its records the same offsets. Its
next leader has an epoch that is 1,048,576 higher than those in the backup. So it comes
after all leaders that the original had since, and gates accept its tokens.

Do not go on with both the original and the restored log: they are one log with two
histories. Whoever follows one of them cannot tell which, and neither can what was
published from it.

If the files of the log's table were in a store of their own, --files names the store
for those of the restored log. Other logs may use it, but not the original.

It needs the rights of a writer and a compactor, and to read BACKUP.`,
		Example: "fencepost restore s3://backups/orders s3://bucket/orders-2",
		Args:    kit.WantArgs(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := k.Store(cmd.Context(), args[0], false)
			if err != nil {
				return err
			}
			to, err := k.Store(cmd.Context(), args[1], true)
			if err != nil {
				return err
			}
			r, err := p.run(cmd.Context(), k, from, to, k.Probing(args[1]))
			if err != nil {
				return err
			}
			did := "restored"
			if r.Already {
				did = "nothing to do: there is a log already, which an earlier call has restored, of"
			}
			return k.Show(r, fmt.Appendf(nil, "%s version %d: %s; %s; the next leader has epoch %d or later\n", did, r.Version, kit.RecordRange(r.First, r.End), p.said(r), r.Epoch))
		},
	}
	p.flags(k, c)
	return c
}

func (p *copying) flags(k *kit.Kit, c *cobra.Command) {
	c.Flags().BoolVar(&p.noVerify, "no-verify", false, "do not read the copy to check it")
	k.FilesFlag(c)
	k.ListenFlag(c)
	k.JSONFlag(c)
}

// run copies. Probing is for a restore, which also makes a directory for the files of the table if there
// is none.
func (p *copying) run(ctx context.Context, k *kit.Kit, from, to store.Store, probing *probe.Options) (*backup.Report, error) {
	files, err := k.Files(ctx, probing != nil)
	if err != nil {
		return nil, err
	}
	r, err := p.copy(ctx, from, to, &backup.Options{
		Files:    files,
		Probe:    probing,
		NoVerify: p.noVerify,
		Progress: func(stage string, done, total int64) { k.Console.Progress(stage, done, total, stage == "copying") },
		Note:     k.Console.Note,
	})
	k.Console.Done()
	if err != nil {
		if r != nil && r.Objects > r.Present {
			k.Console.Note("copied %s before it ended", kit.Plural(r.Objects-r.Present, "object"))
		}
		return nil, err
	}
	return r, nil
}

// were says of how many objects something is true.
func were(n int) string {
	if n == 1 {
		return "1 object was"
	}
	return kit.Plural(n, "object") + " were"
}

// said describes a copy in words.
func (p *copying) said(r *backup.Report) string {
	s := fmt.Sprintf("%s, %s", kit.Plural(r.Objects, "object"), kit.Size(r.Bytes))
	if r.Present > 0 {
		s += fmt.Sprintf(", of which %d were there", r.Present)
	}
	if r.Healed > 0 {
		s += fmt.Sprintf("; %s damaged and copied again", were(r.Healed))
	}
	if r.Files != "" {
		s += ", with the files of the table, which are in " + r.Files
	}
	if r.Verified {
		return s + "; nothing is wrong"
	}
	return s + "; not verified"
}
