// Package delta publishes tables of Fencepost as Delta Lake tables. DuckDB, Polars, delta-rs and
// other engines then read them from the bucket, with no catalog.
//
// A [Publisher] compares the live files of its sources, which are logs, with those that the
// Delta log names, and creates the versions that are missing. Each version is an object that
// is created only if it is absent, so any number of publishers may do this at once.
//
// # What it guarantees
//
//   - Every version of the Delta table is a state of the sources that was committed. Versions
//     never go back.
//   - A version that [Publisher.Publish] has reported has all that was acknowledged before the
//     call.
//   - A file that some version within the retention names stays in the store, whatever
//     compactors do: the publisher pins the log.
//   - Other programs may read the table but not write it: the table needs a feature that only
//     this package has. What somebody has written all the same is found and reported.
//
// # What it does not
//
// It does not delete data files. Compactors do that, when no pin holds a file any more.
package delta
