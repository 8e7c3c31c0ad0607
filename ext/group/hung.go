package group

import (
	"context"
	"sync"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/fence"
)

// hung are the works of this process that had not returned when their session was over.
var hung = struct {
	sync.Mutex
	works map[fence.ID]map[*Partition]bool // by group
}{works: map[fence.ID]map[*Partition]bool{}}

// leaveBehind notes the works that still run.
func (g *Group) leaveBehind() {
	hung.Lock()
	defer hung.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.parts {
		if hung.works[g.format.Group] == nil {
			hung.works[g.format.Group] = map[*Partition]bool{}
		}
		hung.works[g.format.Group][p] = true
	}
}

// broughtHome notes that a work has returned after all.
func (p *Partition) broughtHome() {
	hung.Lock()
	defer hung.Unlock()
	works := hung.works[p.g.format.Group]
	if delete(works, p); len(works) == 0 {
		delete(hung.works, p.g.format.Group)
	}
}

// awaitHung waits until no work of an earlier session runs in this process.
func awaitHung(ctx context.Context, group fence.ID, log *zap.Logger) error {
	for told := false; ; told = true {
		var one *Partition
		hung.Lock()
		for p := range hung.works[group] {
			one = p
		}
		hung.Unlock()
		// guard:hung-waits. A process joins a group again only when all work of its earlier sessions in
		// this group has returned.
		//
		//mutant:replace one == nil => true
		if one == nil {
			return nil
		}
		if !told {
			log.Error("the work of an earlier session of this process still runs; joining again only when it has returned", zap.Int("partition", one.number), zap.Stringer("token", one.token))
		}
		select {
		case <-one.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
