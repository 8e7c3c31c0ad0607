package survey

import (
	"slices"
	"time"

	"github.com/fencepost/fencepost/manifest"
)

// Pin is a pin as JSON has it.
type Pin struct {
	Name     string    `json:"name,omitempty"`
	Version  uint64    `json:"version"`
	Holder   string    `json:"holder"`
	TTL      string    `json:"ttl,omitempty"`
	Renewals uint64    `json:"renewals"`
	Created  time.Time `json:"created"`
	Renewed  time.Time `json:"renewed"`
	Expired  bool      `json:"expired,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Key      string    `json:"key"`
}

// Pins returns the pins for JSON, the oldest first.
func Pins(pins []manifest.Pin) []Pin {
	docs := []Pin{}
	for _, p := range pins {
		d := Pin{
			Name: p.Name, Version: p.Version, Holder: p.Holder, Renewals: p.Renewals, Created: p.Created, Renewed: p.Renewed,
			Expired: p.Expired, Reason: p.Reason, Key: p.Key,
		}
		if p.TTL > 0 {
			d.TTL = p.TTL.String()
		}
		docs = append(docs, d)
	}
	slices.SortFunc(docs, func(a, b Pin) int { return a.Created.Compare(b.Created) })
	return docs
}
