// Package catalog serves published Iceberg tables over Iceberg's REST catalog protocol, to read. It keeps no state: each answer
// comes from the store. So any number of servers may run at once.
//
//	s, err := catalog.New(&catalog.Options{Tables: []catalog.Table{{Namespace: "sales", Name: "orders", Store: st}}})
//	err = http.ListenAndServe("127.0.0.1:8181", s)
//
// # What it guarantees
//
// A client that asks twice never gets an older version of a table the second time, whichever servers it asks. A version is the object
// metadata/v<number>.metadata.json, which the publisher creates if it is absent, one number after the other. The reasons:
//
//   - Each request lists the versions after it has arrived, and gets the highest number. A listing shows every object that was there
//     before. So it shows the version that the client had before, or a newer one.
//   - The publisher deletes old versions, and never the newest. If a listing misses a version because it is deleted meanwhile, it
//     shows the newer ones that were there: see [store.Store].
//   - No answer is shared between requests, not even by two that come at the same time: the listing of the first may have begun before
//     another server showed a newer version to the second client.
//   - Reading number N+1 until it is missing would not do: versions between N and the newest may have been deleted.
//   - A listing begins at the highest version that this server has seen, or at the one in version-hint.text. It has one page then.
//     That is all that both are for, with one exception: if no version is there that is as high, something was lost. Then the table is
//     not served, since a client may have seen more.
//
// # What it does not
//
// It changes nothing: only the publisher of the log writes the table. It hands out no credentials: engines read the store with their
// own. A table is listed before it has a version, and cannot be loaded until then.
package catalog
