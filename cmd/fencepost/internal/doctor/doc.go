// Package doctor checks a log for what docs/operations.md says to check, and says what to do
// about what it finds. It changes nothing, unless it is asked to probe the store.
package doctor
