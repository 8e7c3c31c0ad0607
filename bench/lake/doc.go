// Package lake measures what a published table costs: requests, a large table, publishers at once, messages from
// Kafka beside delta-rs, and how soon delta-rs reads a commit. make bench-lake runs it.
//
// The numbers that a test of package delta counts come from there: it states them as attributes of
// the test. The other arms are processes, one of them in Python.
package lake
