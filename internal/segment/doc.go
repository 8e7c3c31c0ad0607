// Package segment reads and writes segments, the compacted runs of the log.
//
// A segment is a row of blocks, an index and a trailer. Each block is a data frame, with
// the records regrouped to a useful size. The index says where each block is and which
// offset it begins with, so that two requests find any record. docs/format.md has the
// layout.
package segment
