// Package document reads and writes checked JSON objects. All that this project keeps in JSON is such a document: the
// description of a log, manifests, locks, registers, the objects of groups. Extensions keep theirs so, too.
//
// A document is a JSON object. Its first member is its format, and "requires" may name features that a program must
// know to use it. Its last member is the checksum of its bytes and of the last part of its key. So a program refuses
// what it does not know, what has changed since it was written, and what was copied to another name:
//
//	type place struct {
//		Format   int      `json:"format"` // always Format, and the first member
//		Requires []string `json:"requires,omitempty"`
//		Shelf    string   `json:"shelf"`
//	}
//	body, err := document.Encode(key, place{Format: document.Format, Shelf: "b"})
//	err = document.Decode(key, body, &p)
//
// Unknown members are ignored. What old programs must not ignore has a name in "requires". No object that it decodes
// makes it allocate more than some 32 times its size. How large it may be, its reader says: store.ReadOptions.Limit.
package document
