package s3stub

import (
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

// Latency returns how long a request takes whose body has size bytes. It is called from many
// goroutines.
type Latency func(op Op, size int) time.Duration

// Fixed is a latency that never changes.
func Fixed(d time.Duration) Latency {
	return func(Op, int) time.Duration { return d }
}

// quantile99 is the 99 % quantile of the standard normal distribution.
const quantile99 = 2.3263478740408408

// S3Latency draws log-normal latencies like those of S3 within its region: a PUT of 4 KiB
// takes 28 ms in the median and 70 ms at the 99 % quantile. Larger bodies take the
// rest at 90 MB/s. Reads are about twice as fast, a listing about as slow. The same
// seed gives the same sequence.
func S3Latency(seed uint64) Latency {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, seed^0x9e3779b97f4a7c15))
	const base, bytesPerSecond = 4 << 10, 90e6
	return func(op Op, size int) time.Duration {
		p50, p99 := 28*time.Millisecond, 70*time.Millisecond
		switch op {
		case GetObject, HeadObject:
			p50, p99 = 14*time.Millisecond, 45*time.Millisecond
		}
		mu.Lock()
		z := rng.NormFloat64()
		mu.Unlock()
		sigma := math.Log(float64(p99)/float64(p50)) / quantile99
		more := time.Duration(float64(max(size-base, 0)) / bytesPerSecond * float64(time.Second))
		return time.Duration(float64(p50)*math.Exp(sigma*z)) + more
	}
}
