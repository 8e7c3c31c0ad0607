package assign

import "github.com/fencepost/fencepost/fence"

// State is what an organiser knows of a member.
type State uint8

// The states of a member. A member that was found Expired stays so.
const (
	Live State = iota
	// Leaving: it has announced its end. It receives nothing, and what it owns moves.
	Leaving
	// Expired: its object says so, or GETs have found no object for a validity. It never
	// works again, so nobody waits for it.
	Expired
)

// MemberNews is what an organiser knows of one member.
type MemberNews struct {
	Name fence.ID
	// Weight of a live member. Above MaxWeight it counts as MaxWeight.
	Weight uint64
	State  State
}

// Request is what an owner asks for by a call. It counts only while the partition still
// has this tenure: a late request does nothing.
type Request struct {
	Partition int
	Tenure    uint64
	// Fresh asks for a new tenure for the same owner, as its openings are used up. Otherwise
	// the owner gives the partition up: it goes to another member, and stays if there is
	// no other that may have it.
	Fresh bool
	// Avoid are further members that must not receive a partition that was given up.
	Avoid []fence.ID
}

// News is what an organiser knows beside the newest assignment. All of it may be old.
type News struct {
	// Organiser is who makes the assignment.
	Organiser fence.ID
	// Partitions is N by group.json. A lower number than that of the newest assignment is
	// ignored.
	Partitions int
	// Members are the members that the organiser knows something of, each once. A member
	// that the newest assignment lists and that is not here stays as it was listed: absence
	// from a listing is not an end. New ones are listed after the old ones, in this order.
	Members []MemberNews
	// Cleared reports whether an acknowledgement clears a pending entry of the newest
	// assignment. Entries of expired members need none. If it is nil, or says false of a
	// cleared entry, the entry stays: that does no harm.
	Cleared func(partition int, e Entry) bool
	// Requests are the calls of owners. The first of a partition that counts is granted.
	Requests []Request
	// Nobody are the partitions that nobody is to own: their work ends the session of each owner.
	Nobody map[int]bool
}
