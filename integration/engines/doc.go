// Package engines has tests in which other engines read published tables: delta-rs, Polars, DuckDB
// and Spark. Meanwhile writers, a compactor and publishers run as processes and are killed. Run
// them with make engines and make engines-spark, which install the engines.
package engines
