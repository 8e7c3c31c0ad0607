package probe

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Report is what a probe found. It marshals to JSON and is kept in a log's
// format.json.
type Report struct {
	// Store is the store's own name; At is this machine's time of day.
	Store string    `json:"store"`
	At    time.Time `json:"at"`
	// Version of the probe: see [Report.Current].
	Version int `json:"version"`
	// Kept lists the promises that held, in the order in which they were tested.
	Kept []string `json:"kept"`
	// Clients is how many clients raced; CreateRaces and SwapRaces is how many races had a
	// result.
	Clients     int `json:"clients"`
	CreateRaces int `json:"create_races"`
	SwapRaces   int `json:"swap_races"`
	// Chased is how many creates and swaps succeeded that all clients sent without a pause,
	// and Overtaken how many more were refused because another one came first. Both are 0 if the
	// store takes more than 50 µs for a write: the writes of its races overlap by themselves.
	Chased    int `json:"chased,omitempty"`
	Overtaken int `json:"overtaken,omitempty"`
	// Refusals is how many other writes were refused that had to be.
	Refusals int `json:"refusals"`
	// Listed is how many times a listing showed an object that had to be in it.
	Listed int `json:"listed"`
	// Pages is how many pages the longest listing had that asked for small ones; below 2 the driver does not know pages, or the
	// store does not mind, and they were not tested.
	Pages int `json:"pages,omitempty"`
	// Unknown counts requests whose outcome the store did not tell. Echoes counts writes
	// that were applied although the answer was "refused" (412), as when a proxy sends a
	// request twice.
	Unknown int `json:"unknown"`
	Echoes  int `json:"echoes"`
	// ConditionalUpload reports whether a streamed upload is refused if the key exists. It
	// is not required.
	ConditionalUpload bool `json:"conditional_upload"`
	// NotModified reports whether a read of an unchanged object can be answered "not
	// modified". It is not required.
	NotModified bool `json:"not_modified"`
	// ContentVersions reports whether equal bodies have equal versions.
	ContentVersions bool `json:"content_versions"`
	// StoreClock reports whether the store tells its time and when an object was written,
	// and the two agree for a new object. Without it a candidate that starts waits for a
	// whole validity before it takes over.
	StoreClock bool `json:"store_clock"`
	// Put, Get and List are latencies of small objects, one request at a time.
	Put  Latency `json:"put"`
	Get  Latency `json:"get"`
	List Latency `json:"list"`
	// Leftover is how many objects below tmp/ could not be deleted.
	Leftover int `json:"leftover,omitempty"`
}

// Version of the probe. It rises when a probe tests more than the one before.
const Version = 2

// MaxAge is how long a report counts for other parts of the same store.
const MaxAge = 30 * 24 * time.Hour

// Current reports whether the report counts for another part of the same store at a time: the
// store kept every promise, this version of the probe found that, and it was less than
// [MaxAge] ago. Servers are updated and moved.
func (r *Report) Current(now time.Time) bool {
	return r != nil && r.Version == Version && len(r.Kept) == promises && now.Sub(r.At).Abs() < MaxAge
}

// Latency of one kind of request, in milliseconds.
type Latency struct {
	Requests int     `json:"requests"`
	P50      float64 `json:"p50_ms"`
	Max      float64 `json:"max_ms"`
}

func latency(spans []time.Duration) Latency {
	if len(spans) == 0 {
		return Latency{}
	}
	slices.Sort(spans)
	ms := func(d time.Duration) float64 { return float64(d.Round(time.Microsecond)) / float64(time.Millisecond) }
	return Latency{Requests: len(spans), P50: ms(spans[(len(spans)-1)/2]), Max: ms(spans[len(spans)-1])}
}

func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", r.Store)
	for _, p := range r.Kept {
		fmt.Fprintf(&b, "  kept     %s\n", p)
	}
	fmt.Fprintf(&b, "  raced    %d clients: %d creates, %d swaps; %d requests without a known outcome, %d echoes\n",
		r.Clients, r.CreateRaces, r.SwapRaces, r.Unknown, r.Echoes)
	switch {
	case r.Chased > 0 && r.Overtaken == 0:
		fmt.Fprintf(&b, "  chased   %d creates and swaps without a pause; no two overlapped, so these tested nothing: probe again on a machine with two free processors\n", r.Chased)
	case r.Chased > 0:
		fmt.Fprintf(&b, "  chased   %d creates and swaps without a pause; %d more were refused, because another one came first\n", r.Chased, r.Overtaken)
	}
	fmt.Fprintf(&b, "  refused  %d writes that had to be refused; listings showed %d objects that had to be there, in up to %d pages\n", r.Refusals, r.Listed, max(1, r.Pages))
	for _, l := range []struct {
		name string
		Latency
	}{{"put", r.Put}, {"get", r.Get}, {"list", r.List}} {
		fmt.Fprintf(&b, "  %-8s %.1f ms, at most %.1f ms (%d requests)\n", l.name, l.P50, l.Max, l.Requests)
	}
	for _, f := range []struct {
		yes       bool
		has, lack string
	}{
		{r.ConditionalUpload, "uploads can be conditional", "uploads ignore conditions (not needed: their names are unique)"},
		{r.NotModified, "unchanged objects are not sent again", "unchanged objects are sent again"},
		{r.StoreClock, "the store tells its time", "the store does not tell its time: a takeover at start waits a whole validity"},
		{!r.ContentVersions, "versions are unique", "equal bodies have equal versions (harmless: bodies differ)"},
	} {
		text := f.has
		if !f.yes {
			text = f.lack
		}
		fmt.Fprintf(&b, "  note     %s\n", text)
	}
	if r.Leftover > 0 {
		fmt.Fprintf(&b, "  left     %d objects below tmp/ could not be deleted\n", r.Leftover)
	}
	return b.String()
}
