// Package feed streams a file or a pipe into a log, record by record.
//
// # Guarantees
//
//   - The records' bytes, in order, are the input's bytes: whatever they are, and
//     whether or not the last line ends with a newline.
//   - With a cursor each byte of the source is in the log once, however often the
//     feeding process is killed, loses its leadership or is started again, and
//     whoever else feeds the same source. A source that is not the one before, or
//     whose beginning has changed, is refused.
//   - Without one a lost term is survived where it is certain what the log has;
//     otherwise feeding ends and says what is known.
//   - Memory is bounded: what is read and not yet acknowledged is at most the
//     writer's MaxBytes, twice, and one record.
package feed
