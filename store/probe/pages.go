package probe

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
)

// Listings of up to 1,000 keys are one page, and a log needs more only after a while. If the store pages wrongly, a listing then
// ends early or never. So the probe lists what it has written in small pages, as drivers of clouds can.
//
// A store may list in any order, make its pages smaller or larger than asked, and give empty ones.

// somePages is about how many pages such a listing has.
const somePages = 6

// pages lists with small pages: everything, what comes after a key, and while the ends of some pages are deleted, where the
// next ones begin.
func (p *prober) pages(ctx context.Context) error {
	size := max(2, (p.entries+somePages-1)/somePages)
	if size > cloud.PageSize {
		return nil // others have so much below tmp/ that all listings had many pages
	}
	for n, l := range []smallPages{{size: size}, {size: size, after: p.before()}, {size: size, deletes: 3}} {
		const tries = 3 // something else may write there
		deletes := l.deletes
		for try := range tries {
			l.deletes = deletes
			err := p.listSmall(ctx, p.client(n), &l)
			if errors.Is(err, ErrRefused) && try+1 < tries {
				continue
			}
			if err != nil {
				return err
			}
			break
		}
		if p.report.Pages = max(p.report.Pages, l.pages); l.pages < 2 {
			return nil // the driver knows no pages, or the store does not mind what it asks for
		}
	}
	return nil
}

// before returns the key after which the next one is of an object that is there, if possible in the middle.
func (p *prober) before() string {
	keys := slices.Sorted(maps.Keys(p.keys))
	for i := len(keys) / 2; i+1 < len(keys); i++ {
		if p.final[keys[i+1]] != nil {
			return keys[i]
		}
	}
	return ""
}

// smallPages is one listing with small pages.
type smallPages struct {
	size    int
	after   string
	deletes int // the last objects of so many pages, as soon as they were listed
	pages   int
}

func (p *prober) listSmall(ctx context.Context, st store.Store, l *smallPages) error {
	seen := map[string]int{}
	var refused error
	err := p.timed("pages", func() error {
		return store.Retry(ctx, p.settle, func(ctx context.Context) error {
			clear(seen)
			refused = p.listOnce(ctx, st, l, seen)
			if errors.Is(refused, ErrRefused) {
				return nil
			}
			return refused
		})
	})
	switch {
	case refused != nil && err == nil:
		return refused
	case errors.Is(err, store.ErrInvalid), errors.Is(err, store.ErrUnsupported):
		return nil // it takes no small pages
	case err != nil:
		return failed("listing tmp/ in small pages", err)
	}
	for key, want := range p.final {
		switch {
		case want == nil || key <= l.after:
		case seen[key] == 0:
			return p.refuse(Pages, hintPages, nil, "an object that was there all the while is missing from a listing of %d pages", l.pages)
		case seen[key] > 1 && l.pages > 1: // a store without pages may begin a listing again
			return p.refuse(Pages, hintPages, nil, "a listing of %d pages has an object %d times", l.pages, seen[key])
		default:
			p.report.Listed++
		}
	}
	return nil
}

// listOnce counts in seen how often each key comes. It is a refusal if the listing does not end.
func (p *prober) listOnce(ctx context.Context, st store.Store, l *smallPages, seen map[string]int) error {
	most := 4*p.entries + 1000 // others may write meanwhile
	small, pages := cloud.Small(ctx, l.size)
	n := 0
	for info, err := range st.List(small, tmpPrefix, &store.ListOptions{StartAfter: l.after}) {
		l.pages = int(pages())
		if errors.Is(err, cloud.ErrPaging) {
			return p.refuse(Pages, hintPages, err, "a listing failed after %d pages", l.pages)
		} else if err != nil {
			return err
		}
		if n++; n > most {
			return p.refuse(Pages, hintPages, nil, "a listing of some %d objects has shown %d, and does not end", p.entries, n)
		}
		seen[info.Key]++
		if l.deletes > 0 && n%l.size == 0 && p.final[info.Key] != nil {
			l.deletes--
			delete(p.final, info.Key)
			if err := p.mutate(ctx, info.Key, func() error { return st.Delete(ctx, info.Key) }); err != nil {
				return err
			}
		}
	}
	l.pages = int(pages())
	return nil
}
