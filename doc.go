// Package fencepost writes exactly-one-writer output to object stores.
//
// Use it if only one process may write a log or a table at a time, the output lives in
// an object store, and you do not want to run ZooKeeper or etcd for it.
//
// [Run] elects a leader with lock objects in the same store, opens the log, and gives
// your function a [Session]: the log's writer and the leader's term. If the leader dies,
// another process that is in Run takes over and continues where the history ends.
//
// Election alone is not enough. A leader can be paused for an hour, lose its lock, wake
// up and send its next write, and no lease stops that request. Fencepost makes it
// harmless: each leader writes serially numbered objects that are created only if
// absent. Before a successor writes, it occupies the old leader's next object name. The
// old leader's write then fails with 412 Precondition Failed, whenever it wakes up.
//
// # The parts
//
// This package puts the parts together. Each is useful alone:
//
//   - store: the contract with object stores, and drivers for S3, a directory and memory
//   - leader: election with numbered lock objects
//   - fence: epochs and tokens, and a gate that checks tokens for other sinks
//   - writer: the fenced, pipelined append
//   - reader: reads the history from any offset and follows it
//   - compactor: folds the log into segments and prunes what is not needed any more
//   - manifest: creates a log and describes it
//
// Importing this package registers the drivers of store.Open for s3://, file:// and
// mem://. Package sink adapts the loggers of all packages to log/slog.
package fencepost
