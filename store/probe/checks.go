package probe

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/fencepost/fencepost/store"
)

// write makes a write that must be applied, and checks that it was. Old is what the key
// held before, nil for nothing.
func (p *prober) write(ctx context.Context, promise string, n int, key string, old, b []byte, cond store.Condition) (store.Info, error) {
	outcome, info, err := p.put(ctx, promise, p.client(n), key, b, cond)
	if err != nil {
		return info, err
	}
	// Another client reads, since a cache of the first could hide what others see.
	got, read, err := p.get(ctx, p.client(n+1), key)
	switch {
	case err != nil:
		return info, err
	case bytes.Equal(got, b) && outcome == store.Refused:
		p.report.Echoes++ // an earlier request was applied and its answer was lost
		info = read
	case bytes.Equal(got, b):
	case outcome == store.Refused:
		// The condition held: nobody else knows the key, and a lost request of the probe
		// would have left these bytes.
		return info, p.refuse(promise, hintConditions, nil, "a write %s was refused, although the condition held", cond)
	case bytes.Equal(got, old):
		return info, p.refuse(ReadWrite, hintConsistent, nil, "a read after a write (%s) that was acknowledged shows the old object", cond)
	default:
		return info, p.refuse(ReadWrite, hintConsistent, nil, "a read after a write (%s) shows bytes that nobody wrote there", cond)
	}
	if info.Version == "" || info.Version != read.Version {
		return info, p.refuse(OneVersion, hintDriver, nil, "the write answered version %q, the read %q", info.Version, read.Version)
	}
	p.final[key] = b
	return info, nil
}

// refused makes a write that must be refused, and checks that it changed nothing.
func (p *prober) refused(ctx context.Context, promise string, n int, what, key string, old, b []byte, cond store.Condition) error {
	outcome, _, err := p.put(ctx, promise, p.client(n), key, b, cond)
	if err != nil {
		return err
	}
	if outcome == store.Applied {
		return p.refuse(promise, hintConditions, nil, "%s was acknowledged", what)
	}
	got, _, err := p.get(ctx, p.client(n+1), key)
	switch {
	case err != nil:
		return err
	case bytes.Equal(got, b):
		return p.refuse(promise, hintConditions, nil, "%s was refused, and took place all the same", what)
	case !bytes.Equal(got, old) || got == nil != (old == nil):
		return p.refuse(ReadWrite, hintConsistent, nil, "after %s, which was refused, the key holds something else", what)
	}
	p.final[key] = old
	return nil
}

func (p *prober) create(ctx context.Context) error {
	key, first := p.key(), body("create")
	if _, err := p.write(ctx, Create, 0, key, nil, first, store.IfAbsent()); err != nil {
		return err
	}
	return p.refused(ctx, Create, 1, "a create of a key that exists", key, first, body("second create"), store.IfAbsent())
}

func (p *prober) swap(ctx context.Context) error {
	key, a, b, c := p.key(), body("swap a"), body("swap b"), body("swap c")
	one, err := p.write(ctx, Create, 0, key, nil, a, store.IfAbsent())
	if err != nil {
		return err
	}
	two, err := p.write(ctx, Swap, 1, key, a, b, store.IfMatch(one.Version))
	if err != nil {
		return err
	}
	if one.Version == two.Version {
		return p.refuse(Swap, hintConditions, nil, "two writes of different bytes have the same version %q", one.Version)
	}
	if err := p.refused(ctx, Swap, 2, "a swap of a version that has been replaced", key, b, body("stale swap"), store.IfMatch(one.Version)); err != nil {
		return err
	}
	// The version in a listing must be the same: readers compare it with that of a read.
	listed, err := p.list(ctx, p.client(3))
	if err != nil {
		return err
	}
	switch info, ok := listed[key]; {
	case !ok:
		return p.refuse(ListWrite, hintConsistent, nil, "an object that was written and read is missing from a listing")
	case info.Version != two.Version:
		return p.refuse(OneVersion, hintDriver, nil, "the write answered version %q, the listing %q", two.Version, info.Version)
	}
	three, err := p.write(ctx, Swap, 4, key, b, c, store.IfMatch(two.Version))
	if err != nil {
		return err
	}
	p.stale[key] = one.Version
	missing := p.key()
	if err := p.refused(ctx, SwapMissing, 5, "a swap of a key that does not exist", missing, nil, body("missing"), store.IfMatch(three.Version)); err != nil {
		return err
	}
	// For information only: do equal bodies have equal versions? This uses another key.
	// With the same body under the same key, a late swap could find its version again.
	twin, err := p.write(ctx, Create, 6, p.key(), nil, c, store.IfAbsent())
	p.report.ContentVersions = twin.Version == three.Version
	return err
}

// ageSlack is how far the age of an object may be off: stores cut both times to whole
// seconds.
const ageSlack = 2 * time.Second

func (p *prober) ranges(ctx context.Context) error {
	key, b := p.key(), body("ranges")
	info, err := p.write(ctx, Create, 0, key, nil, b, store.IfAbsent())
	if err != nil {
		return err
	}
	var part []byte
	err = store.Retry(ctx, p.settle, func(ctx context.Context) error {
		obj, err := p.client(1).Get(ctx, key, &store.GetOptions{Offset: 3, Length: 5})
		if err != nil {
			return err
		}
		defer obj.Body.Close()
		part, err = io.ReadAll(io.LimitReader(obj.Body, 1<<10))
		if err == nil && len(part) < 5 {
			err = fmt.Errorf("%w: got %d of 5 bytes", io.ErrUnexpectedEOF, len(part))
		}
		return err
	})
	switch {
	case errors.Is(err, store.ErrUnsupported) || errors.Is(err, store.ErrRange) || err == nil && !bytes.Equal(part, b[3:8]):
		return p.refuse(Ranges, hintDriver, err, "bytes 3 to 7 of %d were asked for; %d bytes came, and not these", len(b), len(part))
	case err != nil:
		return failed("reading a range of "+key, err)
	}
	_, read, err := p.get(ctx, p.client(2), key)
	if err != nil {
		return err
	}
	if age, known := read.Age(); known {
		p.report.StoreClock = age >= -ageSlack && age <= p.elapsed()+ageSlack
	}
	_, _, err = store.Read(ctx, p.client(3), key, &store.ReadOptions{IfNoneMatch: info.Version, Limit: 1 << 10, Settle: p.settle})
	p.report.NotModified = errors.Is(err, store.ErrNotModified)
	if err != nil && !p.report.NotModified && !errors.Is(err, store.ErrUnsupported) {
		return failed("reading "+key+" if modified", err)
	}
	return nil
}

// consistency writes, reads, lists and deletes through different clients.
func (p *prober) consistency(ctx context.Context) error {
	for n := range p.opts.Keys {
		key, b := p.key(), body("list")
		// Read the missing key first: some caches remember that it was missing.
		if got, _, err := p.get(ctx, p.client(n+1), key); err != nil {
			return err
		} else if got != nil {
			return p.refuse(ReadWrite, hintConsistent, nil, "a key that nobody ever wrote can be read")
		}
		if _, err := p.write(ctx, Create, n, key, nil, b, store.IfAbsent()); err != nil {
			return err
		}
		listed, err := p.list(ctx, p.client(n+2))
		if err != nil {
			return err
		}
		if _, ok := listed[key]; !ok {
			return p.refuse(ListWrite, hintConsistent, nil, "object %d of %d, written and read, is missing from a listing begun afterwards", n+1, p.opts.Keys)
		}
	}
	return p.deletes(ctx)
}

// listings lists all that is there some more times, in the end in small pages. A listing may lack one key in hundreds.
func (p *prober) listings(ctx context.Context) error {
	for n := range max(1, p.opts.Keys-3) {
		if _, err := p.list(ctx, p.client(n)); err != nil {
			return err
		}
	}
	return p.pages(ctx)
}

// deletes tests that a deleted key is gone, and can be created again. A proxy may send any
// request twice, and the second copy may land at any time. So only what happens every time
// convicts the store.
func (p *prober) deletes(ctx context.Context) error {
	const tries = 5
	var err error
	for n := range tries {
		if err = p.deleteOnce(ctx, n); !errors.Is(err, ErrRefused) {
			return err
		}
	}
	return err
}

// deleteOnce creates a key, writes it twice more, deletes it, reads it, and creates it again.
// A late copy of the first create may land once the key is gone. It brings back the first
// object, which the store is not blamed for. A late swap no longer finds its version. So a
// store that shows another object shows what it has deleted.
func (p *prober) deleteOnce(ctx context.Context, n int) error {
	key := p.key()
	var first, newest []byte
	var deleted []store.Version // of the later objects; a late copy of the first has a version of its own
	promise, cond := Create, store.IfAbsent()
	for i := range 3 {
		b := body("delete")
		info, err := p.write(ctx, promise, n+i, key, newest, b, cond)
		if err != nil {
			return err
		}
		if newest = b; i == 0 {
			first = b
		} else {
			deleted = append(deleted, info.Version)
		}
		promise, cond = Swap, store.IfMatch(info.Version)
	}
	delete(p.final, key)
	err := p.mutate(ctx, key, func() error { return store.DeleteAll(ctx, p.client(n+1), []string{key}, p.settle) })
	if err != nil {
		return failed("deleting "+key, err)
	}
	if got, _, err := p.get(ctx, p.client(n+2), key); err != nil {
		return err
	} else if got != nil && !bytes.Equal(got, first) {
		return p.refuse(ReadWrite, hintConsistent, nil, "an object can still be read after it was deleted")
	}
	listed, err := p.list(ctx, p.client(n+3))
	if err != nil {
		return err
	}
	if info, ok := listed[key]; ok && slices.Contains(deleted, info.Version) {
		return p.refuse(ListWrite, hintConsistent, nil, "an object is still listed after it was deleted")
	}
	return p.createAgain(ctx, n+4, key, first)
}

// createAgain creates a key that was deleted. A late copy of the delete may land after that,
// but not twice. A late copy of the first create may have been faster, with the bytes first.
func (p *prober) createAgain(ctx context.Context, n int, key string, first []byte) error {
	const tries = 3
	for range tries {
		b := body("delete, created again")
		if _, _, err := p.put(ctx, Create, p.client(n), key, b, store.IfAbsent()); err != nil {
			return err
		}
		switch got, _, err := p.get(ctx, p.client(n+1), key); {
		case err != nil:
			return err
		case bytes.Equal(got, b), bytes.Equal(got, first):
			return nil
		case got != nil:
			return p.refuse(ReadWrite, hintConsistent, nil, "an object can still be read after it was deleted and its key was created again")
		}
	}
	return p.refuse(ReadWrite, hintConsistent, nil, "a key that was deleted is missing after it was created again")
}

// upload streams an object, and then another one to the same key, on condition.
func (p *prober) upload(ctx context.Context) error {
	key := p.key()
	settle := *p.settle
	settle.Attempt *= 10
	first, second := p.pattern(), p.pattern()
	want := sha256.New()
	if _, err := io.Copy(want, first()); err != nil {
		return err
	}
	err := store.Retry(ctx, &settle, func(ctx context.Context) error {
		err := p.mutate(ctx, key, func() error {
			_, err := p.client(0).Upload(ctx, key, first(), &store.UploadOptions{SizeHint: p.opts.UploadSize})
			return err
		})
		if store.OutcomeOf(err) == store.Refused {
			return nil // there was no condition, so the bytes decide
		}
		return err
	})
	if errors.Is(err, store.ErrUnsupported) {
		return p.refuse(Uploads, hintDriver, err, "it is not supported")
	} else if err != nil {
		return failed("uploading "+key, err)
	}
	same := func(n int) (bool, error) {
		got := sha256.New()
		err := store.Retry(ctx, &settle, func(ctx context.Context) error {
			got.Reset()
			obj, err := p.client(n).Get(ctx, key, nil)
			if err != nil {
				return err
			}
			defer obj.Body.Close()
			n, err := io.Copy(got, obj.Body)
			if err == nil && n < obj.Size {
				err = fmt.Errorf("%w: got %d of %d bytes", io.ErrUnexpectedEOF, n, obj.Size)
			}
			return err
		})
		if errors.Is(err, store.ErrNotFound) {
			return false, nil
		} else if err != nil {
			return false, failed("reading "+key, err)
		}
		return bytes.Equal(got.Sum(nil), want.Sum(nil)), nil
	}
	if ok, err := same(1); err != nil {
		return err
	} else if !ok {
		return p.refuse(Uploads, hintDriver, nil, "%d bytes were uploaded, and the key does not hold them", p.opts.UploadSize)
	}
	var refused bool
	err = store.Retry(ctx, &settle, func(ctx context.Context) error {
		err := p.mutate(ctx, key, func() error {
			_, err := p.client(2).Upload(ctx, key, second(), &store.UploadOptions{Create: true, SizeHint: p.opts.UploadSize})
			return err
		})
		if refused = store.OutcomeOf(err) == store.Refused; refused || errors.Is(err, store.ErrUnsupported) {
			return nil
		}
		return err
	})
	if err == nil && refused {
		p.report.ConditionalUpload, err = same(3)
		return err
	}
	// It is not required. A store that did not show it, for whatever reason, counts as one
	// that cannot do it.
	return nil
}

// pattern returns a function that returns the same stream of bytes each time.
func (p *prober) pattern() func() io.Reader {
	block := bytes.Repeat(body("upload"), 1<<10)
	return func() io.Reader { return io.LimitReader(&endless{block: block}, p.opts.UploadSize) }
}

type endless struct {
	block []byte
	at    int
}

func (e *endless) Read(b []byte) (int, error) {
	n := copy(b, e.block[e.at:])
	e.at = (e.at + n) % len(e.block)
	return n, nil
}

// again reads everything once more at the end.
func (p *prober) again(ctx context.Context) error {
	for key, want := range p.final {
		got, _, err := p.get(ctx, p.client(len(key)), key)
		if err != nil {
			return err
		}
		if !bytes.Equal(got, want) || got == nil != (want == nil) {
			return p.refuse(Stays, hintConsistent, nil, "an object that was settled has changed by the end of the probe")
		}
	}
	return nil
}
