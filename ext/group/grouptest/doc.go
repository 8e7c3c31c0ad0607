// Package grouptest runs a group on a store of any kind. The tests of drivers use it.
package grouptest
