package main

import (
	"slices"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/member"
)

// anyPartition begins the keys of the log of each partition of a group: all numbers have six digits.
const anyPartition = layout.PartitionsPrefix + "??????/"

// groupPruned are the prefixes of what the organiser of a group deletes when nobody needs it any more.
var groupPruned = []string{member.MemberPrefix, member.CallPrefix, member.AssignPrefix, member.ReadyPrefix, member.AckPrefix}

// conditionalGroup is [conditional] of a group: all but the hint.
var conditionalGroup = append([]string{member.FormatKey}, groupPruned...)

// membership is what members of a group do. Whoever makes the group probes the store.
var membership = []right{
	{"GroupJoin", putObject, []string{member.Prefix}},
	{"GroupPrune", deleteObject, groupPruned},
	{"GroupProbe", uploadObject, []string{layout.TmpPrefix}},
	{"GroupClean", deleteObject, []string{layout.TmpPrefix}},
}

// groupRights are the rights of a role where a group is. The token of a partition is its owner's, so
// its log has no election.
func groupRights(role string) (all []right) {
	switch role {
	case "candidate":
		return membership
	case "writer":
		all = membership
	case "compactor":
		all = rightsBelow(layout.CompactorsPrefix+"/", membership)
	case "doctor":
		return rights[role]
	}
	own := slices.DeleteFunc(slices.Clone(rights[role]), func(r right) bool { return r.sid == "Elect" })
	return slices.Concat(all, rightsBelow(anyPartition, own))
}

// rightsBelow are rights for what has the same names below a prefix.
func rightsBelow(prefix string, all []right) (those []right) {
	for _, r := range all {
		those = append(those, right{r.sid, r.actions, below(prefix, r.prefixes)})
	}
	return those
}

func below(prefix string, names []string) (all []string) {
	for _, name := range names {
		all = append(all, prefix+name)
	}
	return all
}
