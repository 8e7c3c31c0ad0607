// Package doctor checks a log for most of what docs/runbook.md describes, and says what to do
// about what it finds. It changes nothing, unless it is asked to probe the store.
package doctor
