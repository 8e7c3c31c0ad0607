// Package sqlgate tries package fence/sqlgate on real databases: SQLite in the process, and a
// PostgreSQL server that each run starts for itself.
package sqlgate
