// Package backup copies a log to another place while it is in use, and back from there.
//
// A backup is a log by itself: a version of the manifest with all that it names, and the
// chain after its floor as it was. A named pin holds that version until the backup is done.
// Both directions can be stopped at any time and go on from where they were.
package backup
