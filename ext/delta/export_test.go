package delta

// CheckpointEvery makes a publisher write a checkpoint after each n versions.
func (p *Publisher) CheckpointEvery(n int64) { p.every = n }

var InChild = inChild
