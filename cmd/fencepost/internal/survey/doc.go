// Package survey gathers the state of a log: who leads, where its tail is, and how many
// objects and bytes it has.
package survey
