// Package recipes runs the scripts of docs/recipes.md with the programs that they are for, kills and freezes them, and
// looks at what they have written. It needs rsync, restic, sqlite3 and PostgreSQL of the distribution, and Litestream:
// make recipes installs them.
package recipes
