// Package files is where the files of a log's table lie when they are in a second store, which
// many logs may share. It has the names there, as a view that callers use as they use the
// log's own store, and the mark by which a log knows its store again.
package files
