// Package logtest makes logs for tests: in memory, on a store whose every request a test
// can interfere with, in real or in virtual time.
package logtest
