// Package catalog is the verb catalog.
package catalog

import (
	"context"
	"net/url"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/ext/agent/door"
	"github.com/fencepost/fencepost/ext/catalog"
)

// Command returns the verb.
func Command(k *kit.Kit) *cobra.Command {
	t := &kit.TCP{}
	c := &cobra.Command{
		Use:   "catalog [--listen ADDR] [[NAMESPACE.]NAME=]URL...",
		Short: "serve published Iceberg tables to engines, as a REST catalog",
		Long: `Catalog serves Iceberg tables that publish has made, over Iceberg's REST protocol, to
PyIceberg, DuckDB, Spark and others. They read the store with credentials of their own.
Nothing can be changed through it. It keeps no state, so any number may run at once.
See docs/catalog.md.

URL is that of the log. For a log that keeps its files in another store it is that
store. The table is called NAMESPACE.NAME, by default after the last part of the URL, in
the namespace default.

It serves this machine, and only requests for the host 127.0.0.1 or localhost. Where
--listen names another address it needs --tls-cert, and --token-file or --tls-client-ca.
Files of tokens and certificates are read again when they change. A request must name a
--host, or the address itself.

It needs the rights of an engine.`,
		Example: "fencepost catalog sales.orders=s3://bucket/orders",
		Args:    kit.WantArgs(1, 1000),
	}
	c.Flags().StringVar(&t.Addr, "listen", "127.0.0.1:8181", "ADDR:PORT to serve at")
	t.Flags(c)
	k.MetricsFlag(c, "metrics")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return run(cmd.Context(), k, t, args)
	}
	return c
}

func run(ctx context.Context, k *kit.Kit, t *kit.TCP, args []string) error {
	if err := t.Check("", "", ""); err != nil {
		return err
	}
	o := &catalog.Options{Door: door.Door{Hosts: t.Names(), Token: t.Bearer()}, Logger: k.Log}
	for _, arg := range args {
		table, at := named(arg)
		st, err := k.Store(ctx, at, false)
		if err != nil {
			return err
		}
		table.Store = st
		o.Tables = append(o.Tables, table)
	}
	s, err := catalog.New(o)
	if err != nil {
		return kit.Usage("%w", err)
	}
	l, at, err := t.Listen(ctx)
	if err != nil {
		return err
	}
	stop := k.Serve(l, s)
	defer stop()
	k.Console.Note("serving at %s", at)
	<-ctx.Done()
	return context.Cause(ctx)
}

// named reads an argument.
func named(arg string) (t catalog.Table, at string) {
	name, at, found := strings.Cut(arg, "=")
	if !found || strings.Contains(name, "://") {
		name, at = "", arg
		if u, err := url.Parse(arg); err == nil {
			name = path.Base(u.Host + "/" + u.Path)
		}
		return catalog.Table{Namespace: "default", Name: name}, at
	}
	if t.Namespace, t.Name, found = strings.Cut(name, "."); !found {
		t.Namespace, t.Name = "default", name
	}
	return t, at
}
