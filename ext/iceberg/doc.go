// Package iceberg publishes tables of Fencepost as Apache Iceberg tables, format 2. It is a format of package
// delta, whose publisher decides what a version has:
//
//	delta.Open(ctx, root, sources, &delta.Options{Formats: []delta.Format{delta.Lake(), iceberg.Format()}, Location: url})
//
// # What it guarantees
//
// The guarantees of package delta. Each version of the table is an object metadata/v<number>.metadata.json, which is created
// only if it is absent. Both formats of one publisher have the same rows at the same number of edits.
//
// # What it does not
//
// It has no catalog, and lets nobody else write the table. It deletes no data files.
package iceberg
