// Package outside follows logs, groups and locks from outside, with the right to read and a bounded
// number of requests. The verbs serve and exporter show what it knows.
package outside
