package survey

import (
	"time"

	"github.com/fencepost/fencepost/ext/group"
)

// Group is the state of a group. It marshals to JSON. No list is nil.
type Group struct {
	Name       string  `json:"name,omitempty"`
	Partitions int     `json:"partitions"`
	Validity   float64 `json:"validity_seconds"`
	Assignment uint64  `json:"assignment"`
	// Organiser is the name of the first member that is live.
	Organiser string   `json:"organiser,omitempty"`
	Members   []Member `json:"members"`
	// Owners has for each partition the index of its owner in Members, or -1.
	Owners  []int `json:"owners"`
	Moving  []int `json:"moving"`
	Unowned []int `json:"unowned"`
	GivenUp []int `json:"given_up"`
}

// Member of a group.
type Member struct {
	Name     string `json:"name"`
	Identity string `json:"identity,omitempty"`
	Weight   uint64 `json:"weight"`
	Owned    int    `json:"owned"`
	State    string `json:"state"` // "live", "leaving", "lapsed" or "expired"
	Data     string `json:"data,omitempty"`
}

// GroupOf returns what an observer of a group sees.
func GroupOf(s *group.Status) *Group {
	g := &Group{
		Name: s.Name, Partitions: s.Partitions, Validity: s.Validity.Seconds(), Assignment: s.Number,
		Members: []Member{}, Owners: append([]int{}, s.Owners...), Moving: append([]int{}, s.Moving...), Unowned: []int{}, GivenUp: append([]int{}, s.GivenUp...),
	}
	for _, m := range s.Members {
		state := "live"
		switch {
		case m.Expired:
			state = "expired"
		case m.Lapsed:
			state = "lapsed"
		case m.Leaving:
			state = "leaving"
		case g.Organiser == "":
			g.Organiser = m.Name
		}
		g.Members = append(g.Members, Member{m.Name, m.Identity, m.Weight, m.Owned, state, m.Data})
	}
	for p := range s.Partitions {
		if p >= len(s.Owners) || s.Owners[p] < 0 {
			g.Unowned = append(g.Unowned, p)
		}
	}
	return g
}

// Span is a number of seconds as a length of time.
func Span(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
