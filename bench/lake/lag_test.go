package lake

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/fencepost/fencepost/bench/result"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/s3stub"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/probe"
	_ "github.com/fencepost/fencepost/store/s3store"
	"github.com/fencepost/fencepost/writer"
)

// edits is how many commits the lag is the median of.
const edits = 20

// lag is the time from a commit until delta-rs reads it.
func lag(t *testing.T) []result.Row {
	ctx := t.Context()
	dir := t.TempDir()
	command := filepath.Join(dir, "fencepost")
	if out, err := exec.CommandContext(ctx, "go", "build", "-C", "../../cmd/fencepost", "-o", command, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	parquet := filepath.Join(dir, "rows.parquet")
	if out, err := exec.CommandContext(ctx, *python, "follow.py", "make", parquet).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	body, err := os.ReadFile(parquet)
	if err != nil {
		t.Fatal(err)
	}
	srv := s3stub.Start(&s3stub.Options{Latency: s3stub.Fixed(28 * time.Millisecond), RandomETags: true})
	defer srv.Close()
	for name, value := range map[string]string{
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_EC2_METADATA_DISABLED": "true", "AWS_ACCESS_KEY_ID": "AK", "AWS_SECRET_ACCESS_KEY": "SK",
		"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": srv.URL(), "AWS_ALLOW_HTTP": "true", // for delta-rs
	} {
		t.Setenv(name, value)
	}
	url := "s3://bucket/orders?endpoint=" + srv.URL() + "&region=us-east-1"
	st, err := store.Open(ctx, url)
	var w *writer.Writer
	if err == nil {
		w, err = writer.Open(ctx, st, fence.NewToken(1), &writer.Options{
			Init: &manifest.InitOptions{Probe: &probe.Options{Clients: 2, Rounds: 1, Keys: 1, Refusals: 2, UploadSize: 1}}, // shorter
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close(context.WithoutCancel(ctx)) }()

	// They end when the test does.
	ctx, end := context.WithCancel(ctx)
	publisher := exec.CommandContext(ctx, command, "publish", "--watch", url)
	publisher.Stderr = os.Stderr
	reader := exec.CommandContext(ctx, *python, "follow.py", "s3://bucket/orders/file")
	reader.Stderr = os.Stderr
	out, err := reader.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan int)
	for _, cmd := range []*exec.Cmd{publisher, reader} {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cmd.Wait() }()
	}
	defer end()
	go func() {
		defer close(seen)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var version, files int
			if _, err := fmt.Sscan(lines.Text(), &version, &files); err != nil {
				return
			}
			select {
			case seen <- files:
			case <-ctx.Done():
				return
			}
		}
	}()
	rng := rand.New(rand.NewPCG(1, 2))
	var lags, commits []time.Duration
	for i := range edits + 2 {
		begun := time.Now()
		f, err := w.CreateFile(ctx, ".parquet", int64(len(body)))
		if err == nil {
			_, err = f.Write(body)
		}
		if err == nil {
			err = f.Close()
		}
		if err == nil {
			err = w.CommitFiles(ctx, manifest.Edit{Add: []manifest.File{f.File()}})
		}
		if err != nil {
			t.Fatal(err)
		}
		committed := time.Now()
		for n := 0; n <= i; {
			var ok bool
			select {
			case n, ok = <-seen:
			case <-time.After(time.Minute):
			}
			if !ok {
				t.Fatalf("delta-rs does not see commit %d", i)
			}
		}
		if i > 1 { // the first ones make the table, and all warm
			lags, commits = append(lags, time.Since(committed)), append(commits, committed.Sub(begun))
		}
		t.Logf("commit %d took %v, and delta-rs has it %v later", i, committed.Sub(begun), time.Since(committed))
		time.Sleep(time.Second + time.Duration(rng.Int64N(int64(time.Second))))
	}
	const name = "From a commit until delta-rs reads it, each request 28 ms: "
	return []result.Row{
		{Name: name + "p50, s", Value: result.Quantile(lags, 0.5).Seconds(), Goal: 0.5, Note: fmt.Sprintf("%d commits; upload and commit themselves %.2f s", edits, result.Quantile(commits, 0.5).Seconds())},
		{Name: name + "greatest, s", Value: result.Quantile(lags, 1).Seconds(), Goal: -1},
	}
}
