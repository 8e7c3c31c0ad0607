package kit

import (
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
)

// Leads reports whether this runs under fencepost exec, which leads at url. Under fencepost lock nobody does: its tokens count
// locks, and no epochs of a log.
func Leads(url string) bool {
	return os.Getenv("FENCEPOST_EPOCH") != "" && os.Getenv("FENCEPOST_LOCK") == "" && os.Getenv("FENCEPOST_URL") == url
}

// Environment is that of a command that exec or lock starts. Of a variable that is there twice, most programs see the first, so
// those of an exec or lock around this one are left out.
func Environment(add ...string) []string {
	return append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains([]string{"FENCEPOST_URL", "FENCEPOST_EPOCH", "FENCEPOST_LOCK", "FENCEPOST_HOLDER", "FENCEPOST_DEADLINE_FILE", "FENCEPOST_PARTITION"}, name)
	}), add...)
}

// Election adds the flags of an election and returns its options.
func (k *Kit) Election(c *cobra.Command) func() leader.Options {
	var validity time.Duration
	SpanVar(c.Flags(), &validity, "validity", "15s", Positive, "how long a lock holds without a heartbeat")
	return func() leader.Options {
		return leader.Options{Identity: leader.DefaultIdentity(), Validity: validity, Logger: k.Log.Named("leader")} // one name over all terms
	}
}

// Elector is that of a log's leaders, or of its compactors. Its validity counts where a lock has none that can be read; 0 is the default.
func (k *Kit) Elector(st store.Store, compactors bool, validity time.Duration) (*leader.Elector, error) {
	prefix := fencepost.LockPrefix
	if compactors {
		prefix = inspect.CompactorLock.Prefix()
	}
	return leader.New(st, prefix, &leader.Options{Validity: validity, Logger: k.Log.Named("leader")})
}

// Meets says for which leader this process waits, and how long at most.
func (k *Kit) Meets(r leader.Record, self string) {
	switch {
	case r.Holder == self:
	case r.Lapsed:
		k.Console.Note("%s has not renewed its lock for %v: taking over", r.Holder, r.Validity)
	case r.State == leader.Draining:
		k.Console.Note("%s is about to give up the lead", r.Holder)
	case r.Leads():
		k.Console.Note("waiting for %s, which leads in epoch %d since %s; if it has crashed, for %v at most",
			r.Holder, r.Epoch, When(r.Acquired), r.Validity)
	case r.Wait > 0:
		k.Console.Note("%s was deposed; waiting for it to stop, for %v at most", r.Holder, r.Wait)
	}
}

// AwaitCompactor says for which compactor this process waits.
func (k *Kit) AwaitCompactor(o *leader.Options) {
	o.Hooks.Leader = func(r leader.Record) {
		if r.Leads() && r.Holder != o.Identity {
			k.Console.Note("waiting for %s, the compactor of epoch %d; if it has crashed, for %v at most", r.Holder, r.Epoch, r.Validity)
		}
	}
}
