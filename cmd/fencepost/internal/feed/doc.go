// Package feed streams a file or a pipe into a log, record by record.
//
// # Guarantees
//
//   - The bytes of the records, in order, are the bytes of the input. It does not matter
//     what they are, or whether the last line ends with a newline.
//   - With a cursor each byte of the source is in the log once. This holds however often
//     the process is killed, loses the lead or is started again, and if several processes
//     feed the same source. Another source is refused, and so is a source whose beginning
//     has changed.
//   - Without a cursor, feeding goes on after a lost term only if it is certain which
//     records the log has. Otherwise it ends, and says what is known.
//   - Memory is bounded: the bytes that are read and not acknowledged are at most the
//     writer's MaxBytes, twice, and one record.
package feed
