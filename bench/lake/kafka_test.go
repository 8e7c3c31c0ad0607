package lake

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/bench/result"
)

const (
	rounds   = 5
	messages = 2_000_000
	files    = 4
)

// took is what an arm answers: see ext/delta/examples/kafka-lake/speed_test.go.
type took struct {
	Seconds   float64 `json:"seconds"`
	Processor float64 `json:"processor"`
	Bytes     int64   `json:"bytes"`
	Kept      int64   `json:"kept"`
	Files     int     `json:"files"`
}

func wall(k took) float64      { return k.Seconds }
func processor(k took) float64 { return k.Processor }

// arm is a process that works once for each line that it is sent.
type arm struct {
	in  io.WriteCloser
	out *bufio.Reader
	cmd *exec.Cmd
}

// end ends an arm.
func (a *arm) end() {
	_ = a.in.Close()
	_ = a.cmd.Wait()
}

// start starts a process, which ends with the test.
func start(t *testing.T, name string, args ...string) *arm {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	var out io.Reader
	if err == nil {
		out, err = cmd.StdoutPipe()
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	a := &arm{in, bufio.NewReader(out), cmd}
	t.Cleanup(a.end)
	return a
}

// turn lets an arm work once.
func (a *arm) turn(t *testing.T) (k took) {
	t.Helper()
	if _, err := io.WriteString(a.in, "\n"); err != nil {
		t.Fatal(err)
	}
	line, err := a.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &k)
	}
	if err != nil || k.Files != files || k.Bytes < messages*80 {
		t.Fatalf("an arm answers %q: %v", line, err)
	}
	return k
}

// kafka copies messages to Parquet files, beside the same rows from memory.
func kafka(t *testing.T) []result.Row {
	program := filepath.Join(t.TempDir(), "kafka-lake.test")
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-C", "../../ext/delta/examples/kafka-lake", "-c", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	rows := kafkaRows(turns(t, program, true))
	return append(rows, plainRows(turns(t, program, false))...)
}

// turns lets all arms work in turns. If not all, these are messages that count up, and only two arms.
func turns(t *testing.T, program string, full bool) map[string][]took {
	sizes := []string{"-speed-rows", strconv.Itoa(messages), "-speed-files", strconv.Itoa(files), "-speed-dir", t.TempDir()}
	if !full {
		sizes = append(sizes, "-speed-plain")
	}
	broker := start(t, program, append([]string{"-speed", "broker"}, sizes...)...)
	at, err := broker.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	own := func(role string) *arm {
		return start(t, program, append([]string{"-speed", role, "-speed-brokers", strings.TrimSpace(at)}, sizes...)...)
	}
	names := []string{"parquet", "kafka"}
	arms := []*arm{own("parquet"), own("kafka")}
	if full {
		names = append(names, "writer", "deltalake")
		arms = append(arms, own("writer"), start(t, *python, "appends.py", "--rows", strconv.Itoa(messages), "--files", strconv.Itoa(files), "--dir", t.TempDir()))
	}
	all := map[string][]took{}
	for round := range rounds + 1 {
		for i := range arms {
			i = (round + i) % len(arms)
			k := arms[i].turn(t)
			t.Logf("round %d, %s: %+v", round, names[i], k)
			if round > 0 { // the first one makes all warm
				all[names[i]] = append(all[names[i]], k)
			}
		}
	}
	for _, a := range append(arms, broker) {
		a.end()
	}
	return all
}

// over is how fast a is to b, round by round.
func over(a, b []took, of func(took) float64) result.Spread {
	var v []float64
	for i := range a {
		v = append(v, of(b[i])/of(a[i]))
	}
	return result.SpreadOf(v)
}

// plainRows are of messages that count up.
func plainRows(all map[string][]took) []result.Row {
	last := all["kafka"][len(all["kafka"])-1]
	row := func(by string, of func(took) float64) result.Row {
		s := over(all["kafka"], all["parquet"], of)
		note := fmt.Sprintf("%s; %.1f MB become %.1f MB", s.Note, float64(last.Bytes)/1e6, float64(last.Kept)/1e6)
		return result.Row{Name: "Kafka → Parquet, messages that count up, to the same Parquet alone: speed by " + by, Value: s.Median, Note: note, More: true, Ratio: true}
	}
	return []result.Row{row("processor time", processor), row("wall time", wall)}
}

func kafkaRows(all map[string][]took) (rows []result.Row) {
	for _, r := range []struct {
		name, a, b string
		goal       float64
	}{
		{"Kafka → Parquet, to the same Parquet alone from memory", "kafka", "parquet", 0.8},
		{"delta.Writer from memory, to the same Parquet alone", "writer", "parquet", 0},
		{"Kafka → Parquet, to write_deltalake's appends from memory", "kafka", "deltalake", 0},
		{"delta.Writer from memory, to write_deltalake's appends", "writer", "deltalake", 0},
	} {
		for _, by := range []struct {
			name string
			of   func(took) float64
		}{{"speed by processor time", processor}, {"speed by wall time", wall}} {
			s := over(all[r.a], all[r.b], by.of)
			rows = append(rows, result.Row{Name: r.name + ": " + by.name, Value: s.Median, Note: s.Note, Goal: r.goal, More: true, Ratio: true})
		}
	}
	for _, a := range []struct{ name, arm string }{{"Parquet alone", "parquet"}, {"delta.Writer", "writer"}, {"Kafka → Parquet", "kafka"}, {"write_deltalake", "deltalake"}} {
		var a1, a2, a3 []float64
		for _, k := range all[a.arm] {
			a1 = append(a1, messages/k.Processor)
			a2 = append(a2, messages/k.Seconds)
			a3 = append(a3, float64(k.Bytes)/k.Processor/1e6)
		}
		last := all[a.arm][len(all[a.arm])-1]
		rows = append(rows,
			result.Row{Name: a.name + ": messages for a second of the processor", Value: result.Median(a1), More: true, Note: fmt.Sprintf("%.1f MB; %.1f MB become %.1f MB", result.Median(a3), float64(last.Bytes)/1e6, float64(last.Kept)/1e6)},
			result.Row{Name: a.name + ": messages a second", Value: result.Median(a2), More: true, Note: fmt.Sprintf("%.1f MB", result.Median(a2)*float64(last.Bytes)/messages/1e6)},
		)
	}
	return rows
}
