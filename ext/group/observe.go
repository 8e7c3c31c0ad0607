package group

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group/internal/assign"
	"github.com/fencepost/fencepost/ext/group/internal/member"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
)

// Status is what an observer knows of a group.
type Status struct {
	Name       string
	Partitions int
	Validity   time.Duration
	// Number is that of the newest assignment; 0 if there is none.
	Number uint64
	// Members are those that the newest assignment lists, in the order in which they organise, and then those
	// that have joined since.
	Members []Member
	// Owners has for each partition the index of its owner in Members, or -1.
	Owners []int
	// Moving are the partitions that wait until somebody has stopped.
	Moving []int
	// GivenUp are the partitions that their owners have given up, because their work failed or hung: see Retry.
	// If the work of a third owner in a row hung, nobody owns the partition.
	GivenUp []int
}

// Member of a group, as an observer sees it.
type Member struct {
	// Name is the session's: see [Group.Member].
	Name     string
	Identity string
	Data     string
	// Weight is 0 for a worker that stands by.
	Weight uint64
	// Owned is how many partitions it owns.
	Owned int
	// Leaving: it has announced its end. Expired: it was found dead. Lapsed: it was not renewed
	// for longer than a validity.
	Leaving, Expired, Lapsed bool
}

// Observe follows a group without taking part. It yields its status at once, and again after each change.
// Heartbeats are not changes. It makes one listing in each Renew, and reads each object
// once. The sequence ends when ctx does. Transient failures of the store are retried; another error is
// yielded and ends the sequence.
func Observe(ctx context.Context, st store.Store, opts *Options) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		if err := given(st, opts); err != nil {
			yield(Status{}, err)
			return
		}
		o := Options{}
		if opts != nil {
			o = *opts
		}
		o.Clock = clock.Or(o.Clock)
		settle := &store.SettleOptions{Clock: o.Clock}
		v := &observer{st: st, clock: o.Clock, settle: settle, docs: map[string]seenDoc{}}
		told := false
		var last Status
		for {
			s, every, err := v.look(ctx)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				yield(Status{}, err)
				return
			}
			if !told || !s.equal(&last) {
				told, last = true, s
				if !yield(s, nil) {
					return
				}
			}
			if clock.Sleep(ctx, o.Clock, every) != nil {
				return
			}
		}
	}
}

func (s *Status) equal(o *Status) bool {
	return s.Name == o.Name && s.Partitions == o.Partitions && s.Number == o.Number && slices.Equal(s.Members, o.Members) &&
		slices.Equal(s.Owners, o.Owners) && slices.Equal(s.Moving, o.Moving) && slices.Equal(s.GivenUp, o.GivenUp)
}

// observer keeps what it has read.
type observer struct {
	st     store.Store
	clock  clock.Clock
	settle *store.SettleOptions
	docs   map[string]seenDoc
	newest *assign.Assignment
	listed clock.Instant // when the newest listing began
}

// seenDoc is an object that was read, with when its version was first seen, at the latest.
type seenDoc struct {
	version store.Version
	first   clock.Instant
	doc     any
	old     bool // the version is older than a validity by the store's clock
	beat    bool // the version was not read: it came in time, so it was taken for a heartbeat
}

// look lists everything once, and reads what is new.
func (v *observer) look(ctx context.Context) (Status, time.Duration, error) {
	f, _, err := readFormat(ctx, v.st, v.settle)
	if err != nil {
		return Status{}, 0, err
	}
	validity := f.validity()
	now := map[string]store.Info{}
	highest, top := uint64(0), ""
	v.listed = v.clock.Now()
	for info, err := range store.ListAll(ctx, v.st, member.Prefix, nil, v.settle) {
		if err != nil {
			return Status{}, 0, err
		}
		now[info.Key] = info
		if n, ok := member.ParseAssignKey(info.Key); ok && n > highest {
			highest, top = n, info.Key
		}
	}
	maps.DeleteFunc(v.docs, func(key string, _ seenDoc) bool { _, ok := now[key]; return !ok })
	for key, info := range now {
		if err := v.read(ctx, key, info, key == top, validity); err != nil {
			return Status{}, 0, err
		}
	}
	v.newest = assign.New(f.Group, f.Partitions, f.Base)
	if d, ok := v.docs[top]; ok {
		a, isAssignment := d.doc.(*assign.Assignment)
		if !isAssignment || a.Group() != f.Group {
			return Status{}, 0, document.Corrupt(top, "it belongs to another group")
		}
		v.newest = a
	}
	return v.status(&f, now), validity * 2 / 5, nil
}

// read reads an object that an observer needs and has not read in this version. A heartbeat changes only
// the version, so a member is read again only if it was late, or if no other heartbeat comes after it:
// then it may be the end of the session.
func (v *observer) read(ctx context.Context, key string, info store.Info, newest bool, validity time.Duration) error {
	_, what, call := member.ParseKey(member.CallPrefix, key)
	isMember := strings.HasPrefix(key, member.MemberPrefix)
	wanted := isMember || newest || strings.HasPrefix(key, member.AckPrefix) || call && what != "joined" && what != "leaving"
	d, known := v.docs[key]
	instant := v.clock.Now()
	punctual := instant.Sub(d.first) < validity*4/5
	if !wanted || known && d.version == info.Version && (!d.beat || punctual) {
		return nil
	}
	age, dated := info.Age()
	old := dated && age > validity+5*time.Second
	if known && isMember && punctual {
		d.version, d.first, d.old, d.beat = info.Version, instant, old, true
		v.docs[key] = d
		return nil
	}
	body, got, err := store.Read(ctx, v.st, key, &store.ReadOptions{Limit: limit(key), Settle: v.settle})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil
	case errors.Is(err, store.ErrTooLarge):
		return document.Corrupt(key, "%v", err)
	case err != nil:
		return err
	}
	doc, err := decode(key, body)
	if err != nil && newest {
		return err
	}
	first := v.clock.Now() // the request may have waited, and the version may have come meanwhile
	if got.Version == d.version {
		first = d.first // it is as old as it was
	}
	v.docs[key] = seenDoc{version: got.Version, first: first, doc: doc, old: old && got.Version == info.Version}
	return nil
}

// status puts together what was read.
func (v *observer) status(f *format, now map[string]store.Info) Status {
	a := v.newest
	s := Status{Name: f.Name, Partitions: max(f.Partitions, a.Partitions()), Validity: f.validity(), Number: a.Number(), Owners: make([]int, a.Partitions())}
	shares := a.Shares()
	for i, m := range a.Members() {
		x := v.member(m.Name, f.validity(), now)
		x.Owned, x.Weight, x.Leaving = shares[i], max(x.Weight, m.Weight), x.Leaving || m.Leaving
		s.Members = append(s.Members, x)
	}
	for _, key := range slices.Sorted(maps.Keys(now)) {
		name, rest, ok := member.ParseKey(member.MemberPrefix, key)
		if _, listed := a.Index(name); ok && rest == "" && !listed {
			if x := v.member(name, f.validity(), now); !x.Expired {
				s.Members = append(s.Members, x)
			}
		}
	}
	acked := v.acked()
	for p := range s.Owners {
		s.Owners[p] = a.Owner(p)
		if v.moving(p, s.Members, acked) {
			s.Moving = append(s.Moving, p)
		}
	}
	s.GivenUp = member.GivenUp(a, v.calls())
	return s
}

// calls are those with contents that were read, by key.
func (v *observer) calls() map[string]*member.Call {
	calls := map[string]*member.Call{}
	for key, d := range v.docs {
		if c, ok := d.doc.(*member.Call); ok && c != nil {
			calls[key] = c
		}
	}
	return calls
}

// moving reports whether the owner of a partition waits for somebody.
func (v *observer) moving(p int, members []Member, acked map[fence.ID]map[int]uint64) bool {
	a := v.newest
	for _, e := range a.Pending(p) {
		if e.Member != a.Owner(p) && !members[e.Member].Expired && acked[a.Members()[e.Member].Name][p] < e.Number {
			return true
		}
	}
	return false
}

// acked is what acknowledgements say: for each member and partition the highest number.
func (v *observer) acked() map[fence.ID]map[int]uint64 {
	all := map[fence.ID]map[int]uint64{}
	for key, d := range v.docs {
		ack, ok := d.doc.(*member.Ack)
		name, _, isAck := member.ParseKey(member.AckPrefix, key)
		if !ok || !isAck || ack == nil {
			continue
		}
		if all[name] == nil {
			all[name] = map[int]uint64{}
		}
		for _, p := range ack.Partitions {
			all[name][p] = max(all[name][p], ack.Number)
		}
	}
	return all
}

func (v *observer) member(name fence.ID, validity time.Duration, now map[string]store.Info) Member {
	x := Member{Name: name.String()}
	d, ok := v.docs[member.Key(name)]
	rec, isRecord := d.doc.(*member.Record)
	if !ok || !isRecord || rec == nil {
		x.Lapsed = true
		return x
	}
	x.Identity, x.Data, x.Weight, x.Expired = rec.Identity, rec.Data, rec.Weight, rec.Expired
	leaving, _ := member.Leaving(name, "")
	_, x.Leaving = now[leaving]
	// A listing that began so much later shows the same version. What time a look takes says nothing.
	x.Lapsed = !rec.Expired && (d.old || v.listed.Sub(d.first) > validity+validity/10)
	return x
}
