// Package clock measures elapsed time for leases, and lets tests replace it.
//
// A lease must age while its machine is suspended. Go's monotonic clock stops
// there (golang/go#24595): after an hour of sleep a leader would believe that its
// lease is still valid. [System] counts the time asleep. It is the default of
// every Options.Clock in this project, so most programs never name this package.
//
// # In tests
//
// Give the same clock to everything that has an Options.Clock, the store included.
//
//   - [Go] is virtual inside a testing/synctest bubble: hours pass at once. System
//     is not, because it asks the operating system.
//   - [Suspendable] is Go with suspends that the test makes up. Use it to test what
//     a program does after its machine has slept: see the example.
//
// # In programs that lead
//
// A program that paces its work with package time sleeps too long after a suspend:
// Go's timers stop there as well. [Sleep] and [WithTimeout] notice a suspend
// within a second. They take a [Clock], so the same code runs in a bubble. [Or]
// gives an Options.Clock of your own its default.
package clock
