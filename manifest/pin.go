package manifest

import "time"

// MinPinTTL is the shortest time to live of a pin. Some stores take one write a
// second to an object.
const MinPinTTL = 2 * time.Second

// Pin is what a pin's object says. A pin holds one version of the manifest: that
// version, and everything that it names, stays in the store.
type Pin struct {
	// Key of the object.
	Key string
	// Version of the manifest that it holds.
	Version uint64
	// Name is for people. Several pins may have the same one.
	Name string
	// Holder says who made it, for people.
	Holder string
	// TTL is how long it holds without a renewal; 0 if it holds until it is deleted.
	TTL time.Duration
	// Created and Renewed are the holder's time of day, for people.
	Created, Renewed time.Time
	Renewals         uint64
	// Expired: it holds nothing any more, for Reason.
	Expired bool
	Reason  string
}
