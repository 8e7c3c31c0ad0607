package delta

// CheckpointEvery makes a publisher write a checkpoint after each n versions.
func (p *Publisher) CheckpointEvery(n int64) { p.tables[0].table.(*deltaTable).every = n }

var InChild = inChild

// KeepEdits makes a publisher keep as many edits that a format lacks, and Edits returns how many it has.
func (p *Publisher) KeepEdits(n int) { p.kept = n }
func (p *Publisher) Edits() int      { return len(p.feeds[0].edits) }
