// Package inspect looks at a log from outside: which objects it has, by their names.
//
// It writes nothing. What it returns is for programs that watch, check or copy logs; those that use
// the records of a log need package reader.
package inspect
