//go:build unix

package assign

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

// processor is the time that this process has had of the processor.
func processor(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkLook measures what members and organisers do with 100,000 partitions, in time of
// the processor: on a busy machine more passes.
func BenchmarkLook(b *testing.B) {
	measure := func(name string, f func()) {
		b.Run(name, func(b *testing.B) {
			begin := processor(b)
			for b.Loop() {
				f()
			}
			b.ReportMetric(float64((processor(b)-begin).Microseconds())/1000/float64(b.N), "cpu-ms/op")
		})
	}
	g := newGroup(b, 0)
	g.a = steady(MaxPartitions, 1000, 10, rand.New(rand.NewPCG(1, 1)))
	for _, m := range g.a.members {
		g.members = append(g.members, MemberNews{Name: m.Name, Weight: 1})
	}
	g.joined = 1000
	g.next() // it makes the shares fair
	body, news := g.a.Encode(), g.news()
	plan := func(want bool) func() {
		return func() {
			if next, err := Next(g.a, news); err != nil || (next != nil) != want {
				b.Fatal(next, err)
			}
		}
	}
	measure("decode", func() {
		if _, err := Decode("k", body); err != nil {
			b.Fatal(err)
		}
	})
	measure("own", func() {
		for range g.a.Owned(7) {
		}
		for range g.a.PendingOf(7) {
		}
	})
	measure("encode", func() { g.a.Encode() })
	measure("plan-nothing", plan(false))
	g.join(1, 1)
	news = g.news()
	measure("plan-join", plan(true))
	for i := range 500 {
		g.end(2*i, Leaving)
	}
	news = g.news()
	measure("plan-half-leave", plan(true))
	for p := range MaxPartitions {
		news.Requests = append(news.Requests, Request{Partition: p, Tenure: g.a.Tenure(p)})
	}
	measure("plan-all-given-up", plan(true))
}
