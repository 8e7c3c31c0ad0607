package main

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fencepost/fencepost/bench/result"
	"github.com/fencepost/fencepost/integration/servers"
)

var into = result.DirFlag()

// TestServers compares appends with plain requests on real servers. They write to this
// machine's disk and share its processors with the client. A server that is not installed
// is installed first, which takes minutes. If one is not available, the test is skipped
// and its page stays as it is.
func TestServers(t *testing.T) {
	if *into == "" {
		t.Skip("this test only measures; it needs -results")
	}
	r := &report{result.New("Appends beside plain PUTs on real servers", "servers"), t.Name()}
	ctx := t.Context()
	for _, kind := range []*servers.Kind{servers.MinIO, servers.VersityGW} {
		srv := servers.Start(t, kind)
		e, err := newClient(s3.Options{BaseEndpoint: aws.String(srv.Endpoint), Credentials: credentials.NewStaticCredentialsProvider(os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"), "")}, srv.Bucket)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			name    string
			size, n int
			rounds  int
			goal    float64
		}{
			{"64 KiB", 64 << 10, 200, 32, 0.97},
			{"4 MiB", 4 << 20, 32, 12, 0.95},
		} {
			v, err := e.beside(ctx, c.size, c.n, 16, c.rounds)
			if err != nil {
				t.Fatal(err)
			}
			r.add(Row{Name: "throughput to plain PUTs on " + kind.Name + " " + kind.Version + ": " + c.name + " appends, 16 in flight", Value: v.Median, Goal: c.goal, More: true, Ratio: true, Note: v.Note})
		}
		srv.Stop()
	}
	if err := r.Write(*into); err != nil {
		t.Fatal(err)
	}
}

// beside returns the throughput of n appends relative to that of n plain requests. The
// time ends when all appends are acknowledged. One writer makes all rounds, because
// opening one takes longer than a round.
func (e *endpoint) beside(ctx context.Context, size, n, depth, rounds int) (result.Spread, error) {
	w, err := e.open(ctx, pipeline(depth, size))
	if err != nil {
		return result.Spread{}, err
	}
	arms := []func(n int) error{
		func(n int) error { return e.putAll(ctx, size, n, depth) },
		func(n int) error { return errors.Join(appendSome(ctx, w, size, n), w.Flush(ctx)) },
	}
	var timed []result.Arm
	for _, arm := range arms {
		if err := arm(warm * depth); err != nil {
			return result.Spread{}, err
		}
		timed = append(timed, func() (time.Duration, error) {
			start := time.Now()
			err := arm(n)
			return time.Since(start), err
		})
	}
	v, err := result.Turns(rounds, timed...)
	if err := errors.Join(err, w.Close(ctx)); err != nil {
		return result.Spread{}, err
	}
	return v[0], nil
}
