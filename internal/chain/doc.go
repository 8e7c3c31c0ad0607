// Package chain walks the log's chain in a store. A walk fetches many objects at once and
// checks them in order.
//
// A [Source] reads. It follows each seal that fits, and it cannot tell the tail from a hole.
// A [Follower] also classifies what a walk finds: history, junk in a hole, or damage.
package chain
