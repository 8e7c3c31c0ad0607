package result

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Row is a line of the table.
type Row struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	// Goal is a limit for Value. There is none if it is negative, or if it is 0 and More
	// is set.
	Goal float64 `json:"goal"`
	// More says that a greater value is better, as for a speed. Otherwise a smaller one
	// is, as for a time or a cost.
	More bool `json:"more_is_better,omitempty"`
	// Ratio says that the value can be compared between runs and machines.
	Ratio bool   `json:"ratio,omitempty"`
	Note  string `json:"note,omitempty"`
	// By is the name of the measure that made the row and can make it again.
	By string `json:"by"`
}

// Missed reports whether the value misses the goal.
func (r Row) Missed() bool {
	if r.More {
		return r.Value < r.Goal
	}
	return r.Goal >= 0 && r.Value > r.Goal
}

func (r Row) goal() string {
	if r.Goal < 0 || r.More && r.Goal == 0 {
		return "none"
	}
	if r.More {
		return "≥ " + Number(r.Goal)
	}
	return "≤ " + Number(r.Goal)
}

// Number formats 1234567 as 1,234,567, and numbers below 1,000 with up to three decimals.
func Number(v float64) string {
	if v < 1000 {
		return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.3f", v), "0"), ".")
	}
	s := fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Page is the result of a run.
type Page struct {
	Date     string   `json:"date"`
	Machine  string   `json:"machine"`
	Versions []string `json:"versions"`
	Rows     []Row    `json:"rows"`
	Figures  []Figure `json:"-"`
	Made     string   `json:"-"` // the command that makes the page
	Text     string   `json:"-"` // a paragraph before the table
	title    string
	name     string // of its files, without extension
}

// New returns an empty page. name is that of its files.
func New(title, name string) *Page {
	return &Page{title: title, name: name, Made: "make bench", Date: time.Now().UTC().Format(time.DateOnly), Machine: machine(), Versions: versions()}
}

// Add appends rows that the measure by has made.
func (p *Page) Add(by string, rows ...Row) {
	for _, row := range rows {
		row.By = by
		p.Rows = append(p.Rows, row)
	}
}

// Read returns the page with this name from dir.
func Read(dir, name string) (*Page, error) {
	b, err := os.ReadFile(filepath.Join(dir, name+".json"))
	if err != nil {
		return nil, err
	}
	p := &Page{name: name}
	if err := json.Unmarshal(b, p); err != nil {
		return nil, fmt.Errorf("%s.json: %w", name, err)
	}
	return p, nil
}

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

// versions returns the versions of Go and of the libraries that matter most for the
// numbers. It reads go.mod in the working directory or the one above, because a test's build
// information has none.
func versions() []string {
	v := []string{runtime.Version()}
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		mod, _ = os.ReadFile("../go.mod")
	}
	for line := range strings.Lines(string(mod)) {
		if f := strings.Fields(line); len(f) > 1 && (strings.HasSuffix(f[0], "/service/s3") || strings.HasSuffix(f[0], "klauspost/compress")) {
			v = append(v, f[0]+" "+f[1])
		}
	}
	return v
}

// Table returns the page in Markdown.
func (p *Page) Table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s, %s, %s. Made by `%s`.\n\n", p.title, p.Date, p.Machine, strings.Join(p.Versions, ", "), p.Made)
	if p.Text != "" {
		b.WriteString(p.Text + "\n\n")
	}
	b.WriteString("| measure | measured | goal | |\n|---|---|---|---|\n")
	for _, row := range p.Rows {
		mark := ""
		if row.Missed() {
			mark = "missed"
		}
		got := Number(row.Value)
		if row.Note != "" {
			got += " (" + row.Note + ")"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", row.Name, got, row.goal(), mark)
	}
	for _, f := range p.Figures {
		fmt.Fprintf(&b, "\n![%s](%s)\n", f.Title, f.File)
	}
	return b.String()
}

// Write writes table, data and figures to dir.
func (p *Page) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	for _, f := range p.Figures {
		if err := f.draw(filepath.Join(dir, f.File)); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, p.name+".json"), append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, p.name+".md"), []byte(p.Table()), 0o644)
}

// tolerance is how much worse a ratio may be than in the committed results.
const tolerance = 1.1

// Best replaces each row for which again has a better value.
func (p *Page) Best(again *Page) {
	for i := range p.Rows {
		for _, row := range again.Rows {
			if was := p.Rows[i]; was.Name == row.Name && (was.More && row.Value > was.Value || !was.More && row.Value < was.Value) {
				p.Rows[i] = row
			}
		}
	}
}

// Worse compares the ratios with those of before. says lists the rows that are worse by
// more than a tenth. by lists the measures to repeat, which may have met a bad moment. A
// problem that no repetition can solve is by "". If the page is complete, a row of before
// that is missing now is such a problem. Otherwise a measure that was removed or renamed
// would pass.
func (p *Page) Worse(before *Page, whole bool) (says, by []string) {
	now := map[string]Row{}
	for _, row := range p.Rows {
		now[row.Name] = row
	}
	tell := func(measure, format string, args ...any) {
		says = append(says, fmt.Sprintf(format, args...))
		if !slices.Contains(by, measure) {
			by = append(by, measure)
		}
	}
	for _, was := range before.Rows {
		row, there := now[was.Name]
		switch {
		case !there && whole:
			tell("", "gone: %s was %s on %s, and is no longer measured; if it was renamed or removed on purpose, make new results", was.Name, Number(was.Value), before.Date)
		case !there:
		case was.Ratio != row.Ratio || was.More != row.More:
			tell("", "changed: %s is no longer the same kind of number (ratio, more is better) as on %s", was.Name, before.Date)
		// Do not write "worse if": NaN must count as worse.
		case was.Ratio && was.More && !(row.Value*tolerance >= was.Value), was.Ratio && !was.More && !(row.Value <= was.Value*tolerance):
			tell(row.By, "worse: %s is %s, it was %s on %s", row.Name, Number(row.Value), Number(was.Value), before.Date)
		}
	}
	return says, by
}
