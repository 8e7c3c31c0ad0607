// Package store is the contract between Fencepost and an object store, with what every
// user of a store needs: conditional writes whose outcome is certain, and reads with
// retries.
//
// # Use
//
// [Open] opens the store that a URL names; [Sub] gives a log a folder of its own in it.
// [Create] and [Swap] write on a condition. [Read], [ListAll] and [DeleteAll]
// retry. The methods of [Store] make one attempt and never retry.
//
// # Outcomes
//
// A conditional write has one of these outcomes ([OutcomeOf]):
//
//   - applied: it took place;
//   - refused: the store checked the condition, and it does not hold;
//   - rejected: the store turned the request away before it checked anything, such as
//     for missing rights;
//   - unknown: everything else. The request may have been applied though its answer was
//     lost, and it may still be applied long after its sender has given up.
//
// Unknown is never a kind of refused. Create and Swap settle it: they read the key, and
// send the same bytes to the same key again. No other code in Fencepost sends a write
// twice.
//
// # What a store must guarantee
//
// For each key, atomically and with strong consistency: create if absent, swap on a
// version, read after write, list after write. Fencepost needs no order of listings, no
// MD5 ETags, no conditional delete and no user metadata. Package probe asks a live bucket
// whether it keeps these promises.
//
// # Write a driver
//
// A driver is a package with a type that implements [Store]. Start from memstore, the
// shortest one; from gcsstore for a service with HTTP; or from dirstore for files on a disk.
// The steps:
//
//  1. Keys. Check each key with [CheckKey] and each prefix with [CheckPrefix], before
//     anything is sent.
//  2. Put. Options may be nil. Read the condition with [PutOptions.Condition]: always,
//     if absent (== [IfAbsent]()), or if the object has a version ([Condition.Match]).
//     The store must check it atomically. Do not read first and write then: a lock has
//     to be held over both. A version that the store cannot have given is
//     [ErrPrecondition]. Compare versions as text: a parser that takes 01 for 1, or 0
//     for absent, lets a write through. Turn the retries of the SDK
//     off: a retry hides the outcome of the attempt before. Return only when the object is
//     durable: what the store has acknowledged, shown or given as the reason of a refusal
//     survives its crash. No test of this project can see that.
//  3. Versions. Any string that changes with each write: an ETag, a generation. Get,
//     List, Put and Upload show the same version of the same state. Only equal bodies may
//     have equal versions.
//  4. Get. Honour Offset, Length and IfNoneMatch. A negative Offset or Length is
//     [ErrInvalid]. If the version matches, [ErrNotModified] comes before [ErrRange]. An
//     Offset at or past the end is ErrRange, and so is Offset 0 with a Length above 0 on an
//     empty object. Info.Size is the size of the whole object. A Body that ends too early
//     must end in an error.
//  5. List. All pages, each key at most once, complete for what was there when List was
//     called. If the listing misses a key because it is deleted meanwhile, it shows every key
//     that sorts after it and was created before that delete, unless that one is deleted
//     meanwhile too. A snapshot does so, and so do pages in ascending order. A walk over a
//     live hash map does not: when the next number is created and then the one before is
//     deleted, it may miss both. StartAfter is only a hint. Leave out keys that CheckKey
//     would not accept, and stop when the caller's loop stops. Hold no lock while that loop
//     has a key: it may delete or write.
//  6. Upload. Bounded memory, visible whole or not at all. If the caller's reader fails,
//     wrap its error in Err and leave Kind nil. If the answer to the last
//     request is lost, read the key: nobody else writes it. If leftovers cost money,
//     implement [UploadAborter].
//  7. Delete. A missing key is no error.
//  8. Errors. Return an [Error]. Its Kind decides the outcome, so set one only if the
//     store has answered so: 412 is ErrPrecondition; 403 is [ErrDenied]; a 404 of a Put
//     is ErrPrecondition with IfMatch and [ErrNoBucket] without. Leave Kind nil for
//     timeouts, resets, 408, 409, 429 and 5xx, and when ctx ends: nobody can tell. A
//     call whose ctx has ended already should send nothing, and fails in the same way. Wrap
//     the cause in Err; write in Hint what to do.
//  9. Times. Info.LastModified and Info.Date come from the store's clock only. Leave them
//     zero if it does not tell them. A store inside the process takes both from a
//     clock.Clock in its Options, so that tests can move it.
//  10. Traits. Name is the URL that [Open] takes, without parameters and credentials; MinRewrite if one key cannot be written as often
//     as one likes; MultiProcess unless the objects live in this process.
//
// A store of your own that stands in front of a driver, with the same keys, should be a
// [Wrapper]. If it embeds a Store and has no Unwrap, the optional interfaces of that store are
// lost without a sign.
//
// All methods are safe for concurrent use, and none keeps what the caller passed in after
// it has returned, nor goes on in the background.
//
// # Connect and test a driver
//
// Register a URL scheme in init, so that [Open] finds the driver in every program that
// imports its package. Return [Sub] of the store for the path of the URL; it appends the prefix
// to Traits.Name. Refuse with [ErrInvalid], and a Hint that says what to write, whatever else is
// in the URL and means nothing: a user, a fragment, a port, an empty host, a URL without "//"
// (URL.Opaque), and parameters that the driver does not know. Leave Op and Key of the error
// empty: Open sets them, without what may be secret.
//
// If the path is the store itself, such as a directory or a file, none of it is left for a prefix.
// Return the store without Sub, as dirstore does. A program calls Sub itself if it keeps several
// logs in that store.
//
//	func init() { store.Register("xx", open) }
//
//	func open(ctx context.Context, u *url.URL) (store.Store, error) {
//		if u.Opaque != "" || u.Host == "" || u.Port() != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
//			return nil, &store.Error{Kind: store.ErrInvalid, Hint: "write xx://bucket or xx://bucket/prefix"}
//		}
//		st, err := New(u.Host) // no requests: a missing bucket shows at the first one
//		if err != nil {
//			return nil, err
//		}
//		return store.Sub(st, u.Path)
//	}
//
// Run the conformance suite from a test, over clients that share nothing but the store:
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, func(tb storetest.TB) store.Store { … }, nil)
//	}
//
// Probe a live bucket with probe.Run. To see how code bears lost answers, wrap the driver
// with faultstore.New.
//
// The suite and the probe do not prove that a driver is right: their package comments say what
// they miss.
//
// # Add a driver to this repository
//
// The driver is named in each of these places:
//
//   - the map drivers in store/open.go, and the comment of [Open] there;
//   - cmd/fencepost/clouds.go, which imports it for the command line, also if it is for no cloud;
//   - the URLs in README.md, and the map of docs/internals.md;
//   - "What was run" in docs/stores.md, with a row once CI runs it;
//   - unvalidated in internal/house/api_test.go, if no value of its Options can be wrong.
//
// If it needs an SDK, it is a module of its own, as gcsstore is. Then cmd/fencepost/go.mod has a
// require and a replace for it, and .ci/golangci.yml names the SDK.
//
// A driver here imports only store, clock and store/internal/cloud of the project, as internal/house
// says. So a driver that wraps another one, such as dirstore, belongs in a repository of its own.
//
// Then run this. It names what is missing:
//
//	go test ./internal/house
package store
