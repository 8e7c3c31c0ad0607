package probe_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/store/probe"
)

// paged is a store whose listings are read in pages, as a driver of a cloud does.
type paged struct {
	store.Store
	page func(all []store.Info, ask ask) answer
	sent atomic.Int64 // how many pages were asked for
}

// ask is a request for a page. All that is there comes with it, in order.
type ask struct {
	size         int
	after, token string
	n            int // how many pages of this listing came before
}

// answer is a page, and how to go on.
type answer struct {
	page []store.Info
	more bool
	next string
}

func (p *paged) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	n := 0
	after := cmp.Or(opts, &store.ListOptions{}).StartAfter
	return cloud.List(ctx, prefix, opts, func(ctx context.Context, token string) ([]store.Info, bool, string, error) {
		var all []store.Info
		for info, err := range p.Store.List(ctx, prefix, nil) {
			if err != nil {
				return nil, false, "", err
			}
			all = append(all, info)
		}
		slices.SortFunc(all, func(a, b store.Info) int { return strings.Compare(a.Key, b.Key) })
		p.sent.Add(1)
		a := p.page(all, ask{size: cloud.SizeOf(ctx), after: after, token: token, n: n})
		n++
		return a.page, a.more, a.next, nil
	})
}

// from returns what is greater than a key.
func from(all []store.Info, after string) []store.Info {
	return all[slices.IndexFunc(append(all, store.Info{Key: "\xff"}), func(i store.Info) bool { return i.Key > after }):]
}

// right answers as a store does that pages rightly.
func right(all []store.Info, a ask) answer {
	all = from(all, cmp.Or(a.token, a.after))
	if len(all) <= a.size {
		return answer{page: all}
	}
	return answer{all[:a.size], true, all[a.size-1].Key}
}

// edited changes right answers.
func edited(edit func(*answer, ask, []store.Info)) func([]store.Info, ask) answer {
	return func(all []store.Info, a ask) answer {
		r := right(all, a)
		edit(&r, a, all)
		return r
	}
}

// offsets counts where a page begins, instead of naming a key.
func offsets(all []store.Info, a ask) answer {
	at := 0
	_, _ = fmt.Sscan(a.token, &at)
	all = from(all, a.after)
	all = all[min(at, len(all)):]
	if len(all) <= a.size {
		return answer{page: all}
	}
	return answer{all[:a.size], true, fmt.Sprint(at + a.size)}
}

func probePaged(t *testing.T, page func([]store.Info, ask) answer) (*paged, *memstore.Store, *probe.Report, error) {
	t.Helper()
	inner := memstore.New(nil)
	st := &paged{Store: inner, page: page}
	report, err := probe.Run(t.Context(), st, &probe.Options{UploadSize: 1 << 10, Refusals: 1, Rounds: 5, Clock: tooSlow{clock.System(), new(atomic.Int64)}})
	return st, inner, report, err
}

// Whatever a store does that makes a long listing end early, or never, the probe refuses it, with little memory.
func TestWrongPagesAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		page     func([]store.Info, ask) answer
		observed string
	}{
		"the first page again": {func(all []store.Info, a ask) answer {
			r := right(all, ask{size: a.size, after: a.after})
			r.next = fmt.Sprint(a.n)
			return r
		}, "second time"},
		"the first page again, and the end": {func(all []store.Info, a ask) answer {
			r := right(all, ask{size: a.size, after: a.after})
			r.more = r.more && a.n == 0
			return r
		}, "second time"},
		"two pages in turns": {func(all []store.Info, a ask) answer {
			r := right(all, ask{size: a.size, after: a.after})
			if a.n%2 == 1 {
				r = right(all, ask{size: a.size, token: r.next})
			}
			r.more, r.next = true, fmt.Sprint(a.n)
			return r
		}, "second time"},
		"the same token": {edited(func(r *answer, a ask, _ []store.Info) {
			if a.n > 0 {
				r.more, r.next = true, a.token
			}
		}), "not where"},
		"no token": {edited(func(r *answer, _ ask, _ []store.Info) { r.next = "" }), "not where"},
		"no end":   {edited(func(r *answer, a ask, _ []store.Info) { r.more, r.next = true, cmp.Or(r.next, a.token+"!") }), "second time"},
		"empty pages for ever": {edited(func(r *answer, a ask, _ []store.Info) {
			if !r.more && len(r.page) > 0 {
				r.more, r.next = true, "~"
			}
			if a.token >= "~" {
				r.more, r.next = true, a.token+"~"
			}
		}), "empty pages"},
		"the end early":  {edited(func(r *answer, a ask, _ []store.Info) { r.more = r.more && a.n < 2 }), "missing"},
		"one page":       {edited(func(r *answer, _ ask, _ []store.Info) { r.more = false }), "missing"},
		"skips one":      {edited(func(r *answer, a ask, _ []store.Info) { r.page = r.page[min(1, a.n, len(r.page)):] }), "missing"},
		"drops the last": {edited(func(r *answer, _ ask, _ []store.Info) { r.page = r.page[:len(r.page)-1] }), "missing"},
		"skips a page": {edited(func(r *answer, a ask, all []store.Info) {
			*r = right(all, ask{size: a.size, after: a.after, token: r.next})
		}), "missing"},
		"overlaps": {edited(func(r *answer, _ ask, _ []store.Info) {
			if r.more {
				r.next = r.page[len(r.page)-2].Key
			}
		}), "2 times"},
		"counts from the beginning": {offsets, "missing"},
		"ends where the last key was deleted": {edited(func(r *answer, a ask, all []store.Info) {
			if a.token != "" && !slices.ContainsFunc(all, func(i store.Info) bool { return i.Key == a.token }) {
				*r = answer{}
			}
		}), "missing"},
		"begins again after the key, not the token": {func(all []store.Info, a ask) answer {
			if a.after != "" {
				a.token = ""
			}
			r := right(all, a)
			if r.more {
				r.next = fmt.Sprint(r.next, a.n)
			}
			return r
		}, "second time"},
		"begins one too late after a key": {func(all []store.Info, a ask) answer {
			if rest := from(all, a.after); a.after != "" && a.token == "" && len(rest) > 0 {
				a.token = rest[0].Key
			}
			return right(all, a)
		}, "missing"},
		"invents keys": {func(all []store.Info, a ask) answer {
			var r answer
			for i := range a.size {
				r.page = append(r.page, store.Info{Key: fmt.Sprintf("tmp/%d-%d", a.n, i)})
			}
			if a.size == cloud.PageSize {
				return right(all, a)
			}
			r.more, r.next = true, fmt.Sprint(a.n)
			return r
		}, "does not end"},
	} {
		t.Run(name, func(t *testing.T) {
			// A store that pages only when it is asked to, since the probe writes few objects.
			st, inner, report, err := probePaged(t, func(all []store.Info, a ask) answer {
				if a.size == cloud.PageSize {
					return right(all, a)
				}
				return c.page(all, a)
			})
			e, broken := errors.AsType[*probe.Error](err)
			if !broken || e.Promise != probe.Pages || !strings.Contains(err.Error(), c.observed) || slices.Contains(report.Kept, probe.Pages) {
				t.Errorf("%v\n%v", err, report)
			}
			if n := st.sent.Load(); n > 4000 {
				t.Errorf("%d pages", n)
			}
			empty(t, inner)
		})
	}
}

// What a store may do is not refused, and costs few requests.
func TestOddPagesAreAccepted(t *testing.T) {
	for name, c := range map[string]struct {
		page     func([]store.Info, ask) answer
		one      bool // it has one page
		requests int64
	}{
		"right":        {right, false, 52},
		"larger pages": {func(all []store.Info, a ask) answer { a.size = cloud.PageSize; return right(all, a) }, true, 32},
		"shorter pages": {func(all []store.Info, a ask) answer {
			a.size = (a.size + 1) / 2
			return right(all, a)
		}, false, 120},
		"empty ones between": {func(all []store.Info, a ask) answer {
			token, empty := strings.CutSuffix(a.token, "!")
			if empty {
				return answer{nil, true, token}
			}
			r := right(all, a)
			if r.more {
				r.next += "!"
			}
			return r
		}, false, 70},
		"no order": {func(all []store.Info, a ask) answer {
			r := right(all, a)
			slices.Reverse(r.page)
			return r
		}, false, 50},
	} {
		t.Run(name, func(t *testing.T) {
			st, _, report, err := probePaged(t, c.page)
			if err != nil || (report.Pages < 2) != c.one || st.sent.Load() > c.requests {
				t.Errorf("%v, %d pages, %d requests to list", err, report.Pages, st.sent.Load())
			}
			if !strings.Contains(report.String(), fmt.Sprintf("in up to %d pages", max(1, report.Pages))) {
				t.Error(report)
			}
		})
	}
}
