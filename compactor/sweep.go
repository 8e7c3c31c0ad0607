package compactor

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
)

const (
	// sweepBatch is how many keys are collected before they are deleted. The listing is
	// ended before that: a store may not let one delete while it lists.
	sweepBatch = 10_000
	deleteAt   = 1000
	// tmpAge is how old a temporary object must be to be deleted.
	tmpAge = 24 * time.Hour
)

// rule says which objects below a prefix of a store may be deleted.
type rule struct {
	in           store.Store
	kind, prefix string
	dead         func(context.Context, store.Info) (bool, error)
}

// dataRule deletes the log objects before a durable floor, except the seals of the chain.
func (p *pass) dataRule(s *survey) rule {
	floor := s.horizon.Floor.Position
	return rule{p.st, "data", layout.DataPrefix, func(ctx context.Context, info store.Info) (bool, error) {
		pos, ok := layout.ParseDataKey(info.Key)
		if !ok || !pos.Before(floor) {
			return false, nil
		}
		if pos.Epoch == floor.Epoch {
			return true, nil // the seal of this epoch is not before the floor
		}
		// guard:keep-seals. The seal of each epoch stays for ever.
		//
		//mutant:replace pos != seal.Position => pos != seal.Position || true
		//mutant:replace info.Size > frame.HeaderSize => info.Size > frame.HeaderSize || true
		seal, known, err := p.log.SealOf(ctx, s.m, pos.Epoch)
		if err != nil {
			return false, err
		}
		if !known {
			// The epoch was never on the chain, as far as m tells. A seal is a bare header,
			// so a larger object is none.
			return info.Size > frame.HeaderSize, nil
		}
		return pos != seal.Position, nil
	}}
}

// tmpRules delete what probes have left behind. Of a second store that is what all logs share.
func (p *pass) tmpRules() []rule {
	rules := []rule{{p.st, "tmp", layout.TmpPrefix, deadTmp}}
	if p.log.Format().Files != nil {
		rules = append(rules, rule{p.files, "tmp", layout.TmpPrefix, deadTmp})
	}
	return rules
}

func deadTmp(_ context.Context, info store.Info) (bool, error) {
	name := strings.TrimPrefix(info.Key, layout.TmpPrefix)
	id, err := uuid.Parse(name)
	age, known := age(info)
	return err == nil && id.String() == name && known && age >= tmpAge, nil
}

// each calls f for each object that a rule may delete, until f returns false.
func (p *pass) each(ctx context.Context, r rule, f func(store.Info) bool) error {
	n := int64(0)
	for info, err := range store.ListAll(ctx, r.in, r.prefix, nil, p.opts.Settle) {
		if err != nil {
			return err
		}
		if n++; n%1000 == 1 {
			if err := p.pace(ctx, 0); err != nil {
				return err
			}
		}
		if !strings.HasPrefix(info.Key, r.prefix) {
			continue
		}
		dead, err := r.dead(ctx, info)
		if err != nil {
			return err
		}
		if dead && !f(info) {
			return nil
		}
	}
	return nil
}

// sweep deletes what a rule says.
func (p *pass) sweep(ctx context.Context, r rule) error {
	for {
		var keys []string
		err := p.each(ctx, r, func(info store.Info) bool {
			keys = append(keys, info.Key)
			return len(keys) < sweepBatch
		})
		if err != nil {
			return err
		}
		last := len(keys) < sweepBatch
		slices.Sort(keys) // a listing may repeat itself
		if err := p.delete(ctx, r.in, r.kind, slices.Compact(keys)); err != nil || last {
			return err
		}
	}
}

func (p *pass) delete(ctx context.Context, in store.Store, kind string, keys []string) error {
	for batch := range slices.Chunk(keys, deleteAt) {
		if err := p.pace(ctx, 0); err != nil {
			return err
		}
		if err := store.DeleteAll(ctx, in, batch, p.opts.Settle); err != nil {
			return err
		}
		p.report.pruned(kind, batch)
		p.progress()
	}
	return nil
}
