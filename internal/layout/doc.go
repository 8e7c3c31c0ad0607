// Package layout names the objects of a log: every key and prefix stands here, and
// nowhere else. Pruning deletes by these names, so each Parse function reads exactly
// what its counterpart writes, and nothing else.
package layout
