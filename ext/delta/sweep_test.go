package delta_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
)

// damagedPin is the key of a pin that nobody can read.
const damagedPin = "pin/00000000-0000-4000-8000-000000000001.json"

// A pin in a log cannot be read. A publisher that follows the log publishes each commit as soon as
// without that pin. It looks at the pins, and tells its hook, at most 16 times in each retention.
func TestPinThatCannotBeRead(t *testing.T) {
	const commits, each = 30, 30 * time.Second
	follow := func(t *testing.T, damaged bool) (lag time.Duration, lists int, failed []error) {
		inLake(t, func(t *testing.T, k *lake) {
			published := make(chan uint64, 1)
			p := k.publisher(k.Faulty, &delta.Options{Retention: time.Hour, Hooks: delta.Hooks{
				Failed:    func(err error) { failed = append(failed, err) },
				Published: func(r delta.Report) { published <- r.Sources[0].Published },
			}})
			edits := uint64(0)
			commit := func() time.Duration {
				k.rows(1)
				edits++
				begun := time.Now()
				for n := range published {
					if n >= edits {
						break
					}
				}
				return time.Since(begun)
			}
			if damaged {
				k.Put(damagedPin, []byte("{}\n"))
			}
			ctx, cancel := context.WithCancel(t.Context())
			over := make(chan error)
			go func() { over <- p.Run(ctx) }()
			for range 3 { // then versions that name the log leave the retention
				commit()
				time.Sleep(time.Hour)
			}
			failed = nil
			before := k.Faulty.Counts()
			for range commits {
				time.Sleep(each)
				lag += commit()
			}
			lists = k.Faulty.Counts().Of(faultstore.List, "pin/") - before.Of(faultstore.List, "pin/")
			cancel()
			if err := <-over; err != nil {
				t.Error(err)
			}
		})
		return lag / commits, lists, failed
	}
	sound, _, none := follow(t, false)
	late, lists, failed := follow(t, true)
	t.Logf("lag %v, and %v with the pin; then %d LIST of pins, and %d errors", sound, late, lists, len(failed))
	if len(none) > 0 || sound == 0 {
		t.Fatalf("without the damaged pin: lag %v, %v", sound, none)
	}
	if late > 2*sound {
		t.Errorf("a commit is published after %v with the damaged pin, and after %v without it", late, sound)
	}
	if most := int(commits*each/(time.Hour/16)) + 2; lists > most || len(failed) > lists {
		t.Errorf("%d LIST of pins and %d errors in %v, want at most %d", lists, len(failed), commits*each, most)
	}
	if len(failed) == 0 || !errors.Is(failed[0], fence.ErrCorrupt) {
		t.Errorf("the hook was told %v", failed)
	}
}

// Publish succeeds although a pin cannot be read, and releases the pins that this publisher knows. When
// that pin is deleted, it finds the others.
func TestPublishBesideADamagedPin(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		dead := k.publisher(k.Mem, nil)
		for range 3 {
			k.rows(1)
			k.compact()
			k.publish(dead)
			time.Sleep(day)
		}
		left := len(k.pins())
		k.Put(damagedPin, []byte("{}\n"))
		var failed []error
		p := k.publisher(k.Faulty, &delta.Options{Hooks: delta.Hooks{Failed: func(err error) { failed = append(failed, err) }}})
		most := 0
		for range 80 {
			k.rows(1)
			k.publish(p)
			told, before := len(failed), k.Faulty.Counts()
			k.publish(p) // finds nothing
			k.publish(p)
			if n := k.Faulty.Counts().Of(faultstore.List, "pin/") - before.Of(faultstore.List, "pin/"); n > 1 || len(failed)-told != n {
				t.Fatalf("two rounds that find no edit have listed the pins %d times, and told %v", n, failed[told:])
			}
			time.Sleep(day / 2)
			most = max(most, len(k.Keys("pin/")))
		}
		if len(failed) == 0 || !errors.Is(failed[0], fence.ErrCorrupt) {
			t.Errorf("the hook was told %v", failed)
		}
		if most > left+20 {
			t.Errorf("there are up to %d pins; the publisher does not release its own", most)
		}
		k.Remove(damagedPin)
		failed = nil
		for range 3 {
			time.Sleep(day / 2)
			k.publish(p)
		}
		if after := len(k.pins()); len(failed) > 0 || after > most-left {
			t.Errorf("%d pins, and %d before; %d of them were the dead publisher's; %v", after, most, left, failed)
		}
	})
}

// A pin of one log cannot be released. That keeps nobody from the others, and Publish succeeds. The hook is
// told, and the pin is released when that is possible.
func TestPinThatCannotBeReleased(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		var failed []error
		p := k.publisher(k.Faulty, &delta.Options{Hooks: delta.Hooks{Failed: func(err error) { failed = append(failed, err) }}})
		deletes := 0
		refuse(k.Faulty, func(op faultstore.Op) bool {
			fits := op.Kind == faultstore.Delete && len(op.Key) > 4 && op.Key[:4] == "pin/"
			if fits {
				deletes++
			}
			return fits
		})
		for range 20 {
			k.rows(1)
			k.compact() // so that there is a manifest to pin
			k.publish(p)
			time.Sleep(day)
		}
		if deletes == 0 || len(failed) == 0 || !errors.Is(failed[0], store.ErrDenied) {
			t.Fatalf("%d DELETE of pins were refused, and the hook was told %v", deletes, failed)
		}
		before := deletes
		for range 100 {
			k.publish(p)
		}
		if deletes > before+2 { // one as the hold is old, and one when all pins are listed
			t.Errorf("a hundred rounds that find no edit try %d times to release a pin", deletes-before)
		}
		held := len(k.pins())
		k.Faulty.SetHook(nil)
		time.Sleep(day)
		k.rows(1)
		k.compact()
		k.publish(p)
		if n := len(k.pins()); n >= held {
			t.Errorf("%d pins, and %d before they could be released", n, held)
		}
	})
}
