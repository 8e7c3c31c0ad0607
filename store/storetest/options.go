package storetest

// Options say what a store is known to lack, and the scale of the suite. The zero value
// tests everything, and no value is invalid.
type Options struct {
	// Quick runs fewer rounds, for slow stores or among many other tests.
	Quick bool
	// UnsureLosers accepts that the loser of a race gets an answer of unknown outcome (409,
	// 5xx) in place of [store.ErrPrecondition]. There must still be at most one winner,
	// whose object is stored.
	UnsureLosers bool
	// UploadOverwrites accepts that an Upload of several parts with Create replaces an
	// object.
	UploadOverwrites bool
	// LooseListing accepts that a listing misses both a key that is deleted meanwhile and
	// the next key, which sorts after it and was created before the delete. On such a store a listing can
	// miss the newest manifest (T37). A log on it relies on its grace period, which must be
	// longer than any listing takes.
	LooseListing bool
	// OldVersions accepts that a read during a write gives a body with the version of an
	// earlier write. A swap of that version is refused, which costs a round trip and no
	// safety. A version newer than its body is never accepted: a swap of it would replace
	// an object that nobody has read.
	OldVersions bool
	// UploadVersions accepts that an Upload of several parts returns another version than
	// reads and listings show.
	UploadVersions bool
}
