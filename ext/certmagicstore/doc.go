// Package certmagicstore keeps the certificates of certmagic v0.25, and so of Caddy, in an object store, with locks that
// exclude.
//
//	locks, err := lock.New(st, "locks", nil)
//	certmagic.Default.Storage, err = certmagicstore.New(st, "certmagic", locks)
//
// Certmagic passes no token to Store, so the token protects nothing here. What the lock gives is that one machine obtains
// a certificate and the others wait. If that machine is frozen past its lease and goes on, two certificates are obtained,
// and the one that is stored last stays. Both are valid.
package certmagicstore
