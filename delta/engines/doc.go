// Package engines has a test that reads published tables with other engines: delta-rs, Polars
// and DuckDB. Run it with make engines, which installs them.
package engines
