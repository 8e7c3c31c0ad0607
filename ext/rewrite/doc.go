// Package rewrite compacts a table: it merges small files into larger ones. The application
// says how: it reads some files and writes one. So this package works for Parquet, for CSV, and
// for any other format.
//
// A [Rewriter] works beside the leader, in its process, through its writer. Each rewrite is
// one edit that adds a file and removes those that it replaces. So it is fenced like every
// commit, and a reader sees the old files or the new one, at each offset and in each version.
//
// # What it guarantees
//
//   - No row is lost or doubled by a rewrite, if the application's function loses and doubles
//     none. A record count that does not add up is refused.
//   - A file that is damaged is refused, and stays what it is. See reader.File.
//   - If another commit has removed one of the files meanwhile, the rewrite is refused, and
//     other files are chosen.
//   - A rewriter of a deposed leader changes nothing. What it has uploaded is deleted by the
//     log's compactor.
//   - The new file's Meta lists the files that it replaces: manifest.File.Replaces. Who
//     follows the table can tell that its rows are not new.
//   - By default only files with the same Meta are merged, and the new file has it too. So a
//     partitioned table stays partitioned.
//   - The files that a rewrite reads are pinned until it is committed.
//
// # What it does not
//
// It does not sort, and knows no schema. It deletes no files: the log's compactor does, after
// the grace period and when no pin holds them.
package rewrite
