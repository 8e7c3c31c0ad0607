// Package cloud is what the drivers of object stores that are reached over HTTP have
// in common: how their URLs are read, what an answer or none at all means, what is
// asked of a range, and how many requests make one listing or one delete.
//
// It knows no SDK. What a service says in words of its own (codes, reasons,
// messages) its driver judges first, and leaves the rest to this package.
package cloud
