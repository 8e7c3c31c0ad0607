package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// Row is a line of the table.
type Row struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Goal  float64 `json:"goal"`
	// More is better for a speed; for a time or a cost it is worse.
	More bool `json:"more_is_better,omitempty"`
	// Ratio: comparable with another run on another machine.
	Ratio bool   `json:"ratio,omitempty"`
	Note  string `json:"note,omitempty"`
}

func (r Row) missed() bool {
	if r.More {
		return r.Value < r.Goal
	}
	return r.Value > r.Goal
}

func (r Row) goal() string {
	if r.More && r.Goal == 0 {
		return "none"
	}
	if r.More {
		return "≥ " + number(r.Goal)
	}
	return "≤ " + number(r.Goal)
}

// number writes 1234567 as 1,234,567, and small ones with what digits count.
func number(v float64) string {
	if v < 1000 {
		return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.3f", v), "0"), ".")
	}
	s := fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// report is the result of a run.
type report struct {
	Date     string   `json:"date"`
	Machine  string   `json:"machine"`
	Versions []string `json:"versions"`
	Rows     []Row    `json:"rows"`
	figures  []figure
	title    string
	name     string // of its files, and of the target that makes it
}

// writerReport is what the command makes.
func writerReport() *report { return newReport("The writer beside what it stands on", "writer") }

func newReport(title, name string) *report {
	return &report{title: title, name: name, Date: time.Now().UTC().Format(time.DateOnly), Machine: machine(), Versions: versions()}
}

func (r *report) add(rows ...Row) { r.Rows = append(r.Rows, rows...) }

func machine() string {
	name := "unknown processor"
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
				name = strings.TrimSpace(v)
				break
			}
		}
	}
	return fmt.Sprintf("%s/%s, %d × %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), name)
}

func versions() []string {
	v := []string{runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if strings.HasSuffix(m.Path, "/service/s3") || strings.HasSuffix(m.Path, "klauspost/compress") {
				v = append(v, m.Path+" "+m.Version)
			}
		}
	}
	return v
}

// table is the report in Markdown.
func (r *report) table() string {
	var b strings.Builder
	target := "bench"
	if r.name != "writer" {
		target += "-" + r.name
	}
	fmt.Fprintf(&b, "# %s\n\n%s, %s, %s. Made by `make %s`.\n\n", r.title, r.Date, r.Machine, strings.Join(r.Versions, ", "), target)
	b.WriteString("| measure | measured | goal | |\n|---|---|---|---|\n")
	for _, row := range r.Rows {
		mark := ""
		if row.missed() {
			mark = "missed"
		}
		got := number(row.Value)
		if row.Note != "" {
			got += " (" + row.Note + ")"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", row.Name, got, row.goal(), mark)
	}
	for _, f := range r.figures {
		fmt.Fprintf(&b, "\n![%s](%s)\n", f.title, f.file)
	}
	return b.String()
}

// write puts table, data and figures into dir.
func (r *report) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	for _, f := range r.figures {
		if err := f.draw(filepath.Join(dir, f.file)); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, r.name+".json"), append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, r.name+".md"), []byte(r.table()), 0o644)
}

// tolerance is how much worse a ratio may be than in the committed results.
const tolerance = 1.1

// worse compares the ratios with those in dir, and tells of each that has become
// worse.
func (r *report) worse(out io.Writer, dir string) (bool, error) {
	b, err := os.ReadFile(filepath.Join(dir, r.name+".json"))
	if err != nil {
		return false, fmt.Errorf("there is nothing to compare with: %w", err)
	}
	var before report
	if err := json.Unmarshal(b, &before); err != nil {
		return false, fmt.Errorf("%s.json: %w", r.name, err)
	}
	old := map[string]Row{}
	for _, row := range before.Rows {
		old[row.Name] = row
	}
	worse := false
	for _, row := range r.Rows {
		was, there := old[row.Name]
		if !there || !row.Ratio {
			continue
		}
		if row.More && row.Value*tolerance < was.Value || !row.More && row.Value > was.Value*tolerance {
			worse = true
			fmt.Fprintf(out, "worse: %s is %s, it was %s on %s\n", row.Name, number(row.Value), number(was.Value), before.Date)
		}
	}
	return worse, nil
}
