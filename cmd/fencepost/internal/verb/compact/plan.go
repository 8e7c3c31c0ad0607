package compact

import (
	"fmt"
	"strings"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/compactor"
)

// planText describes a plan for people, in several lines.
func planText(p *compactor.Plan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "from    manifest %d; floor %v, offset %d\n", p.Version, p.Floor, p.FloorOffset)
	fmt.Fprintf(&b, "fold    up to %s, %d bytes\n", kit.Plural(p.FoldObjects, "object"), p.FoldBytes)
	for _, m := range p.Merges {
		fmt.Fprintf(&b, "merge   %s, records %d to %d, %d bytes\n", kit.Plural(len(m.Segments), "segment"), m.First, m.End-1, m.Bytes)
	}
	if p.Truncate > p.Start {
		fmt.Fprintf(&b, "give up records %d to %d\n", p.Start, p.Truncate-1)
	}
	for _, d := range p.Deletes {
		fmt.Fprintf(&b, "delete  %d × %s, %d bytes: %s", d.Count, d.Kind, d.Bytes, strings.Join(d.Examples, ", "))
		if d.Count > len(d.Examples) {
			b.WriteString(", …")
		}
		b.WriteByte('\n')
	}
	for _, pin := range p.Pins {
		fmt.Fprintf(&b, "pinned  manifest %d, by pin %q of %s\n", pin.Version, pin.Name, kit.Printable(pin.Holder))
	}
	return b.String()
}

// planDoc is what compact prints with --dry-run and --json.
type planDoc struct {
	*compactor.Plan
	Pins []survey.Pin `json:"pins"`
}
