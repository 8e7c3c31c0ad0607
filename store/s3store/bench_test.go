package s3store_test

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fencepost/fencepost/internal/testkit/s3stub"
	"github.com/fencepost/fencepost/store/s3store"
)

// A create by this driver against a plain PutObject of the SDK, with checksums
// as its configuration has them by default and without any.
func BenchmarkPut(b *testing.B) {
	for _, size := range []int{4 << 10, 64 << 10, 4 << 20} {
		for _, tls := range []bool{false, true} {
			body := randomBody(size)
			run := func(name string, f func(st *s3store.Store, c *s3.Client, key string) error) {
				b.Run(fmt.Sprintf("%s/%dKiB/tls=%v", name, size>>10, tls), func(b *testing.B) {
					srv := start(b, &s3stub.Options{TLS: tls, RandomETags: true})
					st, c := embedded(b, srv, nil), client(b, srv)
					var n atomic.Int64
					b.SetBytes(int64(size))
					b.ReportAllocs()
					b.SetParallelism(8)
					b.RunParallel(func(pb *testing.PB) {
						for pb.Next() {
							// A thousand keys, so that memory does not grow with b.N.
							if err := f(st, c, fmt.Sprintf("data/%d", n.Add(1)%1000)); err != nil {
								b.Error(err)
								return
							}
						}
					})
				})
			}
			ctx := context.Background()
			run("s3store", func(st *s3store.Store, _ *s3.Client, key string) error {
				_, err := st.Put(ctx, key, body, nil)
				return err
			})
			for name, mode := range map[string]aws.RequestChecksumCalculation{
				"sdk": aws.RequestChecksumCalculationWhenSupported, "sdk-nosum": aws.RequestChecksumCalculationWhenRequired,
			} {
				if tls && name == "sdk" {
					continue // a trailer, which the stub refuses
				}
				run(name, func(_ *s3store.Store, c *s3.Client, key string) error {
					_, err := c.PutObject(ctx, &s3.PutObjectInput{Bucket: aws.String("bucket"), Key: &key, Body: bytes.NewReader(body)},
						func(o *s3.Options) { o.RequestChecksumCalculation = mode })
					return err
				})
			}
		}
	}
}
