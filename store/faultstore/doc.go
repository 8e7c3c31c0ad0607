// Package faultstore wraps a store with faults: what networks, servers and
// dying processes do to requests, and nothing that the contract of
// [store.Store] forbids. Code that is right on a store stays right on the same
// store wrapped here; that is what it is for.
//
// # One request
//
// A request passes these stations, in this order:
//
//	Options.Before           a test lets another actor act here
//	Options.Hook, then Rates  the fault is chosen
//	Fault.Delay, Fault.Hold  on its way to the store
//	late requests that are due land
//	Fault.Drop, Fault.Late   it is lost, or a copy lands later on; else it is applied
//	Fault.ReplyDelay, Hang   the reply is on its way
//	Options.After
//	Fault.Err                what the caller hears instead of the reply
//
// So a lost reply is Fault{Err: ErrReset}, a failure before anything is applied
// is Fault{Drop: true, Err: ErrUnavailable}, a request that its client has given
// up and that lands later is Fault{Drop: true, Err: ErrTimeout, Late: &Late{…}},
// a request sent twice by something in between is Fault{Late: &Late{…}}, and a
// 412 that answers the echo of one's own applied write is Fault{Err: ErrEcho}.
//
// # Scripted and random
//
// [Options.Hook] decides for each request; [Script] builds a hook from rules
// ("the second put below lock/ loses its reply"). Where the hook returns the
// zero Fault, [Options.Rates] may add a random one. It depends only on the seed,
// the client's name, the kind and how many requests that client made before:
// same seed, same sequence of calls, same faults.
//
// # Clients
//
// [Store.Client] makes a further client of the same faulty store, such as
// another process. Clients share the script, the seed, counters, log and late
// requests; each crashes and pauses alone. After [Store.Crash] a client is a
// dead process: nothing reaches the store from it any more, except what it had
// sent before and is late.
//
// # Late requests
//
// A late request is carried out as it was sent, condition included, by the
// next request of any client that finds it due, before that request is itself
// applied. Nobody who asks the store through this package can tell the
// difference to a landing at its very time, and no goroutine or timer is needed.
// Who looks at the inner store directly calls [Store.Release] or [Store.Land]
// first.
//
// It does not make a store break its promises: for wrappers that do, see the
// tests of package probe.
package faultstore
