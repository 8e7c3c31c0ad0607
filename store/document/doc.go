// Package document reads and writes the JSON objects of a log: format.json, manifests, their
// pages, pins and locks. Each begins with its format, names the features that a program must
// know to use it, and ends with the checksum of its bytes. A program refuses what it does not
// know, and what has changed since it was written.
package document
