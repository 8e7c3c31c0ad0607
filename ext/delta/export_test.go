package delta

// CheckpointEvery makes a publisher write a checkpoint after each n versions.
func (p *Publisher) CheckpointEvery(n int64) { p.tables[0].table.(*deltaTable).every = n }

var InChild = inChild
