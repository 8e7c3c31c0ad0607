package main

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	"github.com/google/uuid"

	"github.com/fencepost/fencepost/bench/result"
	"github.com/fencepost/fencepost/internal/test/s3stub"
	"github.com/fencepost/fencepost/store"
)

// https compares what PUTs over https cost the processor: those of the driver, which sends a
// CRC-32C and signs no SHA-256; those without a checksum; and those that sign a SHA-256 of the
// body, as over plain http. Client and server are one process, so each time includes the server's
// work. The server checks what checksums it gets.
func https(ctx context.Context, r *report) error {
	srv := s3stub.Start(&s3stub.Options{TLS: true, RandomETags: true})
	defer srv.Close()
	e, err := newClient(s3.Options{
		BaseEndpoint: aws.String(srv.URL()), HTTPClient: srv.HTTPClient(),
		Credentials: credentials.NewStaticCredentialsProvider("AK", "SK", ""),
	}, bucket)
	if err != nil {
		return err
	}
	e.Server, e.delays = srv, &delays{}
	none := func(o *s3.Options) { o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired }
	sign := func(o *s3.Options) {
		o.APIOptions = append(o.APIOptions, func(s *middleware.Stack) error {
			_, err := s.Finalize.Swap((&v4.ComputePayloadSHA256{}).ID(), &v4.ComputePayloadSHA256{})
			return err
		})
	}
	plain := func(opts ...func(*s3.Options)) func(context.Context, string, []byte) error {
		return func(ctx context.Context, key string, body []byte) error {
			_, err := e.client.PutObject(ctx, &s3.PutObjectInput{Bucket: &e.bucket, Key: &key, Body: bytes.NewReader(body)}, opts...)
			return err
		}
	}
	for _, c := range []struct {
		name    string
		size, n int
	}{{"64 KiB", 64 << 10, 512}, {"4 MiB", 4 << 20, 16}} {
		bodies := payloads(c.size)
		arm := func(put func(context.Context, string, []byte) error) result.Arm {
			return func() (time.Duration, error) {
				e.forget()
				prefix, before := uuid.NewString(), processorTime()
				err := atOnce(ctx, 4, c.n, func(ctx context.Context, i int) error {
					return put(ctx, fmt.Sprintf("%s/%d", prefix, i), bodies[i%len(bodies)])
				})
				return processorTime() - before, err
			}
		}
		took, err := result.Times(12,
			arm(func(ctx context.Context, key string, body []byte) error {
				_, err := e.st.Put(ctx, key, body, &store.PutOptions{If: store.IfAbsent()})
				return err
			}), arm(plain(none)), arm(plain(none, sign)))
		if err != nil {
			return err
		}
		per := func(d []time.Duration) float64 {
			return float64(result.Quantile(append([]time.Duration(nil), d...), 0.5)) / float64(c.size*c.n)
		}
		beside := result.Speed(took[1], took[0]) // the driver's time to that without a checksum
		signed := result.Speed(took[1], took[2])
		r.add(Row{Name: "PUTs of " + c.name + " over https with a CRC-32C: processor time of client and server, to PUTs without a checksum", Value: beside.Median, Goal: -1, Ratio: true,
			Note: fmt.Sprintf("%s; with a signed SHA-256 %s (%s); ns a byte: %.2f, without a checksum %.2f, with a SHA-256 %.2f",
				beside.Note, result.Number(signed.Median), signed.Note, per(took[0]), per(took[1]), per(took[2]))})
	}
	return nil
}
