// Package survey gathers what there is to know of a log at a glance: who leads,
// where it ends, what it takes up.
package survey
