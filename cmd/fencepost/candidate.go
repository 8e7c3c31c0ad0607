package main

import (
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
)

// elector is that of a log's leaders, or of its compactors. Its validity counts where a lock has none that can be read; 0 is the default.
func (a *app) elector(st store.Store, compactors bool, validity time.Duration) (*leader.Elector, error) {
	prefix := fencepost.LockPrefix
	if compactors {
		prefix = inspect.CompactorLock.Prefix()
	}
	return leader.New(st, prefix, &leader.Options{Validity: validity, Logger: a.log.Named("leader")})
}

// meets says for which leader this process waits, and how long at most.
func (a *app) meets(r leader.Record, self string) {
	switch {
	case r.Holder == self:
	case r.Lapsed:
		a.con.note("%s has not renewed its lock for %v: taking over", r.Holder, r.Validity)
	case r.State == leader.Draining:
		a.con.note("%s is about to give up the lead", r.Holder)
	case r.Leads():
		a.con.note("waiting for %s, which leads in epoch %d since %s; if it has crashed, for %v at most",
			r.Holder, r.Epoch, when(r.Acquired), r.Validity)
	case r.Wait > 0:
		a.con.note("%s was deposed; waiting for it to stop, for %v at most", r.Holder, r.Wait)
	}
}
