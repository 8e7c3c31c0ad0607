// Package screen draws what a outside.Hub knows as text, for the verb top.
package screen
