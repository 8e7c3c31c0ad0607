package writer

// Held is how many bytes of records a future keeps in memory.
func (f Future) Held() int { return f.b.Size() }
