// Package cloud is what the drivers of object stores over HTTP have in common: their URLs
// and options, the meaning of an answer or of its lack, ranges, and the requests of a
// listing or a delete.
//
// It knows no SDK. A driver classifies what its service says in words of its own (codes,
// reasons, messages), and leaves the rest to this package.
package cloud
