// Package result holds what was measured, and writes it as a table, as data and as
// plots. It compares with what was measured before.
package result
