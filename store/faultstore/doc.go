// Package faultstore wraps a store with faults, for tests: what networks, servers and dying
// processes do to requests, and nothing that the contract of [store.Store] forbids. Code
// that is correct on a store must be correct on the same store wrapped here.
//
// # One request
//
// A request passes these stations, in this order:
//
//	Options.Before           a test lets another actor act here, mostly by BeforeFirst
//	Options.Hook, then Rates  the fault is chosen
//	Fault.Delay, Fault.Hold  on its way to the store
//	late requests that are due land
//	Fault.Drop, Fault.Late   it is lost, or a copy lands later on; else it is applied
//	Fault.ReplyDelay, Hang   the reply is on its way
//	Options.After
//	Fault.Err                the caller gets it in place of the reply
//
// Examples:
//
//	Fault{Err: ErrReset}                                a lost reply
//	Fault{Drop: true, Err: ErrUnavailable}              a failure; nothing is applied
//	Fault{Drop: true, Err: ErrTimeout, Late: &Late{…}}  a timeout; the request lands later
//	Fault{Late: &Late{…}}                               a proxy sends the request twice
//	Fault{Err: ErrEcho}                                 a 412 for one's own applied write
//
// # Scripted and random
//
// [Options.Hook] decides for each request. [Script] builds a hook from rules, such as "the
// second put below lock/ loses its reply". If the hook returns the zero Fault,
// [Options.Rates] may add a random one. A random fault depends only on the seed, the
// client's name, the kind, and the number of requests that client made before. So the same
// calls with the same seed get the same faults.
//
// # Clients
//
// [Store.Client] makes a further client of the same faulty store, such as another process.
// Clients share the script, the seed, counters, log and late requests. Each crashes and
// pauses alone. After [Store.Crash] nothing from a client reaches the store, except late
// requests that it had sent before.
//
// # Late requests
//
// A late request is applied as it was sent, with its condition. The next request of any
// client that finds it due applies it first, so no goroutine or timer is needed. Through
// this package nobody can tell the difference. A test that reads the inner store directly
// calls [Store.Release] or [Store.Land] first.
//
// This package does not make a store break its promises. The tests of package probe have
// wrappers that do.
package faultstore
