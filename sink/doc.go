// Package sink keeps work from waiting for its log. A log goes to a pipe, a terminal or a disk that may block for ever, and a
// leader that waits for it neither works nor gives up the lead. [Queue] writes lines beside the work. [Logger] does so for a
// zap logger, and is what each package resolves its option Logger with.
package sink
