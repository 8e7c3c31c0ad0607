// Package document reads and writes the JSON objects of a log: format.json,
// manifests, their pages and pins. Each says its format and which features a program
// must know to use it. A program refuses what it does not know.
package document
