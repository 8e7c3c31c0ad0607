// Package fencepost writes exactly-one-writer output to object stores.
//
// Only one process may write a log or a table at a time, and no ZooKeeper is
// wanted. [Run] elects that process with lock files in the store itself, opens
// the log in its epoch, and hands it a writer. Election alone is never enough: a
// leader that was paused wakes up and writes on. So each leader writes serially
// numbered objects that are created only if absent, and a successor takes the
// zombie's next number: the zombie gets a 412, whenever it wakes.
//
// # The parts
//
// Each package is useful alone:
//
//   - store: the contract with object stores; S3, a directory, memory
//   - leader: election, with numbered lock files
//   - fence: epochs, tokens, the chain rule; pure
//   - writer: the fenced, pipelined append
//   - reader: reads the history, from any offset, and follows it
//   - compactor: folds, prunes, and keeps what stops the zombies
//   - manifest: the log's state in numbered versions
//
// This package puts them together, and registers the drivers for s3://, file://
// and mem:// with store.Open.
package fencepost
