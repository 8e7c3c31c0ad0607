// Package result holds measurements. It writes them as a table, as data and as plots, and
// compares them with earlier ones.
package result
