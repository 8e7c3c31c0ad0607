// Package manifest describes a log: what it is ([Format], created by [Init]), and the
// changes of its table of files ([Edit], [File]).
//
// A log's state is kept in numbered versions, the manifests, by an internal package. Package reader takes
// snapshots and pins of them; package writer commits edits; package compactor folds
// the log into them.
package manifest
