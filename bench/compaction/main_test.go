package compaction

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/internal/s3stub"
	"github.com/fencepost/fencepost/store"
	_ "github.com/fencepost/fencepost/store/s3store"
)

var write = flag.Bool("write", false, "write the numbers to ../results/compaction.json")

// serve is set in the process that is the endpoint.
const serve = "FENCEPOST_BENCH_SERVE"

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(serve) != "" {
		srv, err := s3stub.Start(nil)
		if err != nil {
			panic(err)
		}
		fmt.Println(srv.StoreURL())
		_, _ = io.Copy(io.Discard, os.Stdin) // until its parent is gone
		os.Exit(0)
	}
	for name, value := range map[string]string{
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench",
	} {
		os.Setenv(name, value)
	}
	status := m.Run()
	if err := report(); err != nil {
		panic(err)
	}
	os.Exit(status)
}

// endpoint starts a process with an S3 endpoint and opens its bucket.
func endpoint(t *testing.T) store.Store {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serve+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), strings.TrimSpace(url))
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// Row is a line of the table.
type Row struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Goal  float64 `json:"goal"`
	More  bool    `json:"more_is_better,omitempty"`
	Note  string  `json:"note,omitempty"`
}

var rows []Row

func add(t *testing.T, r Row) {
	rows = append(rows, r)
	sign := "≤"
	if r.More {
		sign = "≥"
	}
	t.Logf("%-60s %10.3f  (%s %g)  %s", r.Name, r.Value, sign, r.Goal, r.Note)
}

func report() error {
	if !*write || len(rows) == 0 {
		return nil
	}
	b, err := json.MarshalIndent(map[string]any{"rows": rows}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join("..", "results", "compaction.json"), append(b, '\n'), 0o644)
}
