package frame_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
)

// A slot is created only if it is absent, so a seal in the leader's next slot is
// a fence: a reader follows the seal, and what a zombie adds after it is
// not on the chain.
func Example() {
	log := fence.ID{1}
	slots := map[fence.Position][]byte{} // a bucket
	create := func(at fence.Position, object []byte) error {
		if _, taken := slots[at]; taken {
			return errors.New("412")
		}
		slots[at] = object
		return nil
	}
	data := func(p frame.Point, record string) []byte {
		var b frame.Builder
		b.Add([]byte(record))
		return b.Finish(&frame.Header{Log: log, Position: p.Position, Offset: p.Offset, Prev: p.Prev, Time: time.Now()}, frame.Plain)
	}
	seal := func(p frame.Point, next fence.Epoch) []byte {
		return frame.EncodeSeal(&frame.Header{Log: log, Position: p.Position, Time: time.Now()}, next)
	}
	walk := func(each func(offset uint64, record []byte)) frame.Point {
		p := frame.Start()
		for {
			b, ok := slots[p.Position]
			if !ok {
				return p // the tail
			}
			f, err := frame.Decode(b, fence.DefaultLimits())
			if err != nil {
				panic(err)
			}
			if p, err = p.Next(log, f); err != nil {
				panic(err)
			}
			for offset, record := range f.All() {
				each(offset, record)
			}
		}
	}
	quiet := func(uint64, []byte) {}

	_ = create(frame.Genesis(), seal(frame.Start(), 1)) // leader 1 opens
	p := walk(quiet)
	_ = create(p.Position, data(p, "paid"))
	zombie := walk(quiet)

	_ = create(zombie.Position, seal(zombie, 2)) // leader 2 opens
	p = walk(quiet)
	_ = create(p.Position, data(p, "shipped"))

	fmt.Println("zombie:", create(zombie.Position, data(zombie, "cancelled")))
	walk(func(offset uint64, record []byte) { fmt.Printf("%d %s\n", offset, record) })
	// Output:
	// zombie: 412
	// 0 paid
	// 1 shipped
}

// A builder is used again and again; a frame is valid until then.
func ExampleBuilder() {
	var b frame.Builder
	b.Add([]byte("one"))
	b.Add([]byte("two"))
	b.SetCursor([]byte("topic-3@77"))
	object := b.Finish(&frame.Header{Position: fence.Position{Epoch: 1, Seq: 1}, Offset: 40}, frame.Zstd)

	f, err := frame.Decode(object, fence.DefaultLimits())
	if err != nil {
		fmt.Println(err)
		return
	}
	for offset, record := range f.All() {
		fmt.Printf("%d %s\n", offset, record)
	}
	fmt.Printf("cursor %s\n", f.Cursor)
	// Output:
	// 40 one
	// 41 two
	// cursor topic-3@77
}
