package main

import (
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

// TestServers compares appends with plain requests on servers that write to this
// machine's disk, and share its processors with their client. A server that is not
// installed is installed first, in minutes; one that cannot be had leaves its page as
// it is.
func TestServers(t *testing.T) {
	if *into == "" {
		t.Skip("measures only with -results")
	}
	r := &report{result.New("Appends beside plain PUTs on real servers", "servers", "bench"), t.Name()}
	ctx := t.Context()
	for _, kind := range []*servers.Kind{servers.MinIO, servers.VersityGW} {
		srv := servers.Start(t, kind)
		e, err := newClient(s3.Options{BaseEndpoint: aws.String(srv.Endpoint), Credentials: credentials.NewStaticCredentialsProvider(os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"), "")}, srv.Bucket)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			name     string
			size, n  int
			goal     float64
			rounds   int
			inFlight int
		}{
			{"64 KiB", 64 << 10, 100, 0.97, 28, 16},
			{"4 MiB", 4 << 20, 32, 0.95, 8, 16},
		} {
			v, err := result.Turns(c.rounds,
				func() (time.Duration, error) { return e.timePlain(ctx, e.putAll, c.size, c.n, c.inFlight, nil) },
				func() (time.Duration, error) { return e.timeFenced(ctx, c.size, c.n, c.inFlight, nil) })
			if err != nil {
				t.Fatal(err)
			}
			r.add(Row{Name: "throughput to plain PUTs on " + kind.Name + " " + kind.Version + ": " + c.name + " appends, 16 in flight", Value: v[0].Median, Goal: c.goal, More: true, Ratio: true, Note: v[0].Note})
		}
		srv.Stop()
	}
	if err := r.Write(*into); err != nil {
		t.Fatal(err)
	}
}
