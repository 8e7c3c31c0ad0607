// Package push measures how soon readers that a leader tells see a record, and what they cost the store.
package push
