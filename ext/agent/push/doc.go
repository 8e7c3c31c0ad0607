// Package push tells readers of a log what its leader acknowledges, as soon as it does.
//
// The leader's side is a [Feed], which sees what a writer sends and is told what is acknowledged. What the leader's lock says
// of it is an [Announcement]. The readers' side is [Source], for reader.Options.Push: it reads the lock, and connects to the
// leader.
//
// A reader relies on the leader only for time. It checks each object as one that it has read, and finds by itself what is not
// pushed. Whoever may write the lock may name another leader, and could as well write the log.
package push
