// Package screen draws what a watch.Hub knows as text, for the verb top.
package screen
