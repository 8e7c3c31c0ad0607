package store

import "context"

// SwapClean is [Swap], and tells whether it was clean: one request was sent, and
// answered, so that no copy of it can still be on its way. Whoever is going to rely
// on a version for long, while others may delete the object, needs that: a copy of
// the create and a copy of the swap that follows it, both landing after the delete,
// would bring the version back.
func SwapClean(ctx context.Context, st Store, key string, body []byte, old Version, opts *WriteOptions) (info Info, clean bool, err error) {
	c := &counted{Store: st}
	info, err = Swap(ctx, c, key, body, old, opts)
	return info, c.puts == 1 && c.unheard == 0, err
}

// counted notices attempts of which a copy may still be on its way.
type counted struct {
	Store
	puts, unheard int
}

func (c *counted) Put(ctx context.Context, key string, body []byte, opts *PutOptions) (Info, error) {
	c.puts++
	info, err := c.Store.Put(ctx, key, body, opts)
	if err != nil {
		c.unheard++
	}
	return info, err
}
