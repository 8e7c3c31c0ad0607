// Package clouds holds the tests of groups that need the drivers and the servers of other clouds. It is apart, because
// the SDKs take long to compile.
package clouds
