// Package locks measures locks with names in virtual time, at 28 ms a request, counted at the store. Its tests make the page
// locks.
package locks
