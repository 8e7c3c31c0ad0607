// Package publish has the verbs publish, published and unpublish.
package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/ext/iceberg"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// tableArg explains the argument TABLE of the verbs below.
const tableArg = `TABLE is where engines find the table. It is the folder of the log's files, URL/file,
and may be left out. For a log that keeps its files in another store it is that store.`

// Publish returns the verb.
func Publish(k *kit.Kit) *cobra.Command {
	var watch bool
	var partition string
	var f formats
	var o delta.Options
	c := &cobra.Command{
		Use:   "publish [--watch] [--format delta,iceberg] URL [TABLE]",
		Short: "publish the table of files as a Delta Lake or Iceberg table",
		Long: `Publish creates the missing versions of a Delta Lake table, of an Iceberg table, or of both
with the same files. So Spark, DuckDB, Polars and others can read the log's table of Parquet files.
With --watch it goes on until it is stopped, and waits for a log that is not there yet. Any number
of publishers may run at once.

` + tableArg + `

It pins the log, so that files stay as long as engines may read them: see --retention.
Unpublish lets go of them.

It needs the rights of a publisher.`,
		Example: "fencepost publish --watch --partition day:date s3://bucket/orders",
		Args:    kit.WantArgs(1, 2),
	}
	fl := c.Flags()
	f.flags(c)
	fl.BoolVar(&watch, "watch", false, "go on until stopped")
	fl.StringVar(&o.Name, "name", "", "the table's name, for people; set by the first publisher")
	fl.StringVar(&partition, "partition", "", "its partitions, as column:type,…; set by the first publisher")
	kit.SpanVar(fl, &o.Retention, "retention", "7d", time.Hour, "how long older versions can be read; set by the first publisher")
	kit.SpanVar(fl, &o.Every, "every", "100ms", time.Millisecond, "with --watch: how often to look for edits, at most")
	k.ListenFlag(c)
	k.JSONFlag(c)
	kit.Needs(c, "watch", "every", "listen", "prices")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		var err error
		o.Partition = columns(partition)
		ctx, cancel := context.WithCancelCause(cmd.Context())
		defer cancel(nil)
		publishing(k, &o, watch, cancel)
		if o.Hooks, err = k.Gauges.Publisher(o.Hooks); err != nil {
			return err
		}
		if watch {
			if err := k.AwaitLog(ctx, args[0]); err != nil {
				return err
			}
		}
		p, err := openPublisher(ctx, k, args, &f, &o)
		if err != nil {
			return err
		}
		if watch {
			return cmp.Or(kit.Ends(ctx, p.Run(ctx)), context.Cause(ctx))
		}
		r, err := p.Publish(ctx)
		if err != nil {
			return err
		}
		if err := printPublished(k, &r, nil); err != nil {
			return err
		}
		return r.Err()
	}
	return c
}

// columns reads day:date,region.
func columns(list string) (all []delta.Column) {
	for _, part := range parts.FindAllString(list, -1) {
		if name, of, _ := strings.Cut(strings.TrimSpace(part), ":"); name != "" {
			all = append(all, delta.Column{Name: name, Type: of})
		}
	}
	return all
}

// parts finds what stands between commas that are not in parentheses, as that of decimal(4,2) is.
var parts = regexp.MustCompile(`([^,(]|\([^)]*\)?)+`)

// publishing says what happens meanwhile.
func publishing(k *kit.Kit, o *delta.Options, watch bool, fail func(error)) {
	o.Hooks.Foreign = func(f delta.Foreign) { k.Console.Note("%s: %s", f.Key, f.What) }
	o.Hooks.Failed = func(err error) { k.Console.Note("%s; trying again", kit.Line(err)) }
	o.Hooks.Published = func(r delta.Report) {
		switch {
		case watch && k.JSON:
			if err := k.PrintRound(documentOf(&r)); err != nil {
				fail(kit.Unread("publishing", err))
			}
		case watch:
			k.Console.Note("version %d: %d files, %d edits of the log", r.Version, r.Files, r.Sources[0].Published)
		}
	}
}

// formats are the flags that say in which formats a table is published, and where engines find it.
type formats struct{ list, location string }

func (f *formats) flags(c *cobra.Command) {
	c.Flags().StringVar(&f.list, "format", "delta", "the table's formats: delta, iceberg, or both with a comma")
	c.Flags().StringVar(&f.location, "location", "", "with iceberg: the URL of TABLE for engines, if that is another")
}

// of returns the formats.
func (f *formats) of(args []string) (all []delta.Format, err error) {
	for name := range strings.SplitSeq(f.list, ",") {
		switch strings.TrimSpace(name) {
		case "delta":
			all = append(all, delta.Lake())
		case "iceberg":
			all = append(all, iceberg.Format(cmp.Or(f.location, location(args))))
		default:
			return nil, kit.Usage("there is no format %q; use delta, iceberg, or delta,iceberg", name)
		}
	}
	return all, nil
}

// location returns the URL of a table as engines take it: without options, and with a path that has no escapes.
func location(args []string) string {
	u, err := url.Parse(args[len(args)-1])
	if err != nil {
		return "" // the store says so
	}
	own := strings.Trim(u.Path, "/")
	if len(args) == 1 {
		own = strings.Trim(own+"/file", "/")
	}
	if u.Scheme == "file" {
		return "file://" + path.Clean("/"+own)
	}
	return u.Scheme + "://" + u.Host + "/" + own
}

// openPublisher opens the log URL and its table.
func openPublisher(ctx context.Context, k *kit.Kit, args []string, f *formats, o *delta.Options) (*delta.Publisher, error) {
	st, err := k.LogStore(ctx, args[0])
	if err != nil {
		return nil, err
	}
	root, src, err := placeOf(ctx, k, st, args)
	if err != nil {
		return nil, err
	}
	if o.Formats, err = f.of(args); err != nil {
		return nil, err
	}
	p, err := delta.Open(ctx, root, []delta.Source{src}, o)
	if errors.Is(err, delta.ErrOptions) {
		return nil, kit.Usage("%w", err)
	}
	return p, err
}

// placeOf returns where the table of a log is.
func placeOf(ctx context.Context, k *kit.Kit, st store.Store, args []string) (store.Store, delta.Source, error) {
	f, err := manifest.ReadFormat(ctx, st, nil)
	if err != nil {
		return nil, delta.Source{}, err
	}
	if f.Files != nil {
		if len(args) < 2 {
			return nil, delta.Source{}, kit.Usage("this log keeps its files in another store, %s: give its URL as TABLE", f.Files.Store)
		}
		root, err := k.Store(ctx, args[1], false)
		if err != nil {
			return nil, delta.Source{}, err
		}
		return root, delta.Source{Log: st}, nil
	}
	base, query, found := strings.Cut(args[0], "?")
	own := strings.TrimRight(base, "/") + "/file"
	if found {
		own += "?" + query
	}
	if len(args) > 1 && strings.TrimRight(args[1], "/") != own {
		return nil, delta.Source{}, kit.Usage("the table of this log can be published only where its files are: leave out TABLE, or give %s", own)
	}
	return delta.Beside(st)
}

// PublishedDoc is what publish and published print as JSON.
type PublishedDoc struct {
	Format    string   `json:"format"`
	Version   int64    `json:"version"`
	Files     int      `json:"files"`
	Log       string   `json:"log"`
	Edits     uint64   `json:"edits"`
	Published uint64   `json:"published"`
	Behind    uint64   `json:"behind"`
	Manifest  uint64   `json:"manifest"`
	Error     string   `json:"error,omitempty"`
	Foreign   []string `json:"foreign,omitempty"`
	Others    []string `json:"others,omitempty"`
	// Also are the tables of the other formats.
	Also []TableDoc `json:"also,omitempty"`
}

// TableDoc is the table in another format.
type TableDoc struct {
	Format    string `json:"format"`
	Version   int64  `json:"version"`
	Files     int    `json:"files"`
	Edits     uint64 `json:"edits"`
	Published uint64 `json:"published"`
	Behind    uint64 `json:"behind"`
	Manifest  uint64 `json:"manifest"`
	Error     string `json:"error,omitempty"`
}

func documentOf(r *delta.Report) PublishedDoc {
	s := r.Sources[0]
	d := PublishedDoc{Format: r.Format, Version: r.Version, Files: r.Files, Log: s.Log.String(), Edits: s.Edits, Published: s.Published, Manifest: s.Manifest}
	d.Behind = d.Edits - min(d.Edits, d.Published)
	for _, log := range r.Others {
		d.Others = append(d.Others, log.String())
	}
	if s.Err != nil {
		d.Error = s.Err.Error()
	}
	for _, o := range r.Also {
		of := documentOf(&o)
		d.Also = append(d.Also, TableDoc{of.Format, of.Version, of.Files, of.Edits, of.Published, of.Behind, of.Manifest, of.Error})
	}
	return d
}

func printPublished(k *kit.Kit, r *delta.Report, foreign []string) error {
	d := documentOf(r)
	d.Foreign = foreign
	if r.Version < 0 {
		return k.Show(d, []byte("nothing to publish: the log has no edits yet\n"))
	}
	return k.Show(d, kit.Rows(func(row func(name, format string, args ...any)) {
		for _, f := range append([]TableDoc{{d.Format, d.Version, d.Files, d.Edits, d.Published, d.Behind, d.Manifest, d.Error}}, d.Also...) {
			if len(d.Also) > 0 {
				row("format", "%s", f.Format)
			}
			row("version", "%d, with %d files", f.Version, f.Files)
			row("published", "%d of %d edits; %d behind", f.Published, f.Edits, f.Behind)
			row("holds", "version %d of the manifest", f.Manifest)
		}
		for _, log := range d.Others {
			row("other log", "%s", log)
		}
		for _, f := range foreign {
			row("foreign", "%s", f)
		}
		if d.Error != "" {
			row("left behind", "%s", d.Error)
		}
	}))
}

// Published returns the verb.
func Published(k *kit.Kit) *cobra.Command {
	var f formats
	c := &cobra.Command{
		Use:   "published [--json] URL [TABLE]",
		Short: "print what is published, and how far behind it is",
		Long: `Published prints the newest version of the table, and how many edits of the log are
in it and how many are not. It also prints the ids of other logs in the table, and what
other programs have left in the table and beside the files. It changes nothing.

` + tableArg + `

It needs the right to read.`,
		Example: "fencepost published s3://bucket/orders",
		Args:    kit.WantArgs(1, 2),
	}
	k.JSONFlag(c)
	f.flags(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		var foreign []string
		o := &delta.Options{Hooks: delta.Hooks{Foreign: func(f delta.Foreign) { foreign = append(foreign, f.Key+": "+f.What) }}}
		p, err := openPublisher(cmd.Context(), k, args, &f, o)
		if err != nil {
			return err
		}
		r, err := p.Status(cmd.Context())
		if err != nil {
			return err
		}
		return cmp.Or(printPublished(k, &r, foreign), r.Err())
	}
	return c
}

// Unpublish returns the verb.
func Unpublish(k *kit.Kit) *cobra.Command {
	var f formats
	c := &cobra.Command{
		Use:   "unpublish [--json] URL [TABLE]",
		Short: "take the log out of its Delta or Iceberg table, for good",
		Long: `Unpublish adds a version to the table that removes the log's files from it, and lets
go of the log. Files that only older versions name are deleted by the next compactions,
also while engines read them. The log can not be published to this table again.

` + tableArg + `

It needs the rights of a publisher.`,
		Example: "fencepost unpublish s3://bucket/orders",
		Args:    kit.WantArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := openPublisher(cmd.Context(), k, args, &f, &delta.Options{})
			if err != nil {
				return err
			}
			r, err := p.Unpublish(cmd.Context())
			if err != nil {
				return err
			}
			return k.Show(map[string]any{"unpublished": true, "version": r.Version}, fmt.Appendf(nil, "unpublished; the last version is %d\n", r.Version))
		},
	}
	k.JSONFlag(c)
	f.flags(c)
	return c
}
