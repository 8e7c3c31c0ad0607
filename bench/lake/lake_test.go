package lake

import (
	"cmp"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/bench/result"
)

var (
	into   = result.DirFlag()
	only   = flag.String("only", "", "measure only the parts that match this `regexp` (commit, publish, publishers, kafka, lag), and keep the other rows of the page, if they are of the same day and versions")
	python = flag.String("python", "", "the Python that has delta-rs, of make engines; needed with -results")
	remark = flag.String("remark", "", "a `sentence` about the machine, for the page")
)

const title = "Tables: what a commit, a publisher and Kafka cost"

const text = "Requests are counted by tests of package delta; each commit is one file. The publisher with 100,000 files begins with nothing, in memory. Ten publishers run in virtual time, with requests of up to 56 ms.\n\n" +
	"Kafka: 2,000,000 messages of a key of 14 bytes and 100 bytes of JSON become four files, one for each partition. The JSON has random numbers. The producer has Kafka's defaults: it does not compress, and a batch has up to 16 KiB. " +
	"Each arm is a process with one core (GOMAXPROCS=1); the arms take turns. `Parquet alone` has the messages in memory, makes the same rows of them, writes these with parquet-go, and syncs each file. `delta.Writer` has them in memory too, and commits each file. " +
	"`Kafka → Parquet` is a worker of ext/delta/examples/kafka-lake that owns all partitions. It reads a Kafka of franz-go (kfake, a process of its own on the other core), writes through `delta.Writer` to a directory, and commits each file with its offset. Its time begins before it asks Kafka for the topic, and ends when all is committed. " +
	"`write_deltalake` appends the same rows, which are in Arrow's memory. It does not sync its files. All have Zstandard at level 3, and parquet-go's and delta-rs's other defaults. " +
	"`Messages that count up` are those of the example's story, of 88 bytes. They compress better, so that Parquet takes less time, and Kafka the same: the share is lower. " +
	"A value is the median of the rounds; brackets have the range.\n\n" +
	"Lag: a writer commits a file each 1 to 2 s on an S3 endpoint in memory where each request takes 28 ms. `fencepost publish --watch` is a process, and so is delta-rs, which looks for a new version all the time. " +
	"The time counts from when the commit was acknowledged until delta-rs has loaded a version with the file."

// parts make the rows of the page.
var parts = []struct {
	name string
	rows func(*testing.T) []result.Row
}{{"commit", commits}, {"publish", publishes}, {"publishers", publishers}, {"kafka", kafka}, {"lag", lag}}

// TestLake makes the page. Without -results it checks that the numbers of package delta arrive.
func TestLake(t *testing.T) {
	if *into == "" {
		if rows := commits(t); len(rows) < 8 {
			t.Errorf("only %d rows of requests: %v", len(rows), rows)
		}
		return
	}
	if *python == "" {
		t.Fatal("-results needs -python; use make bench-lake")
	}
	which, err := regexp.Compile("^(" + cmp.Or(*only, ".*") + ")$")
	if err != nil {
		t.Fatal(err)
	}
	page := result.New(title, "lake")
	page.Made = "make bench-lake"
	page.Versions = append(page.Versions[:1:1], versions(t)...)
	page.Text = text
	if *remark != "" {
		page.Text += "\n\n" + *remark
	}
	before := &result.Page{}
	if *only != "" {
		if before, err = result.Read(*into, "lake"); errors.Is(err, fs.ErrNotExist) {
			before = &result.Page{}
		} else if err != nil {
			t.Fatal(err)
		} else if before.Date != page.Date || before.Machine != page.Machine || !slices.Equal(before.Versions, page.Versions) {
			t.Fatalf("the page is of %s, %s, %v: measure all parts again", before.Date, before.Machine, before.Versions)
		}
	}
	for _, p := range parts {
		if which.MatchString(p.name) {
			page.Add(p.name, p.rows(t)...)
			continue
		}
		for _, row := range before.Rows {
			if row.By == p.name {
				page.Add(p.name, row)
			}
		}
	}
	if err := page.Write(*into); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", page.Table())
}

// versions are those of the libraries that write and read Parquet.
func versions(t *testing.T) (v []string) {
	for file, names := range map[string][]string{
		"../../ext/delta/examples/kafka-lake/go.mod": {"github.com/parquet-go/parquet-go", "github.com/twmb/franz-go", "github.com/klauspost/compress"},
		"../../integration/engines/requirements.txt": {"deltalake"},
	} {
		b, err := os.ReadFile(filepath.FromSlash(file))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			m := regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(name) + `(?: v|==)([0-9.]+)`).FindSubmatch(b)
			if m == nil {
				t.Fatalf("%s has no version of %s", file, name)
			}
			v = append(v, name[strings.LastIndexByte(name, '/')+1:]+" "+string(m[1]))
		}
	}
	slices.Sort(v)
	return v
}

// commits are the requests for a commit.
func commits(t *testing.T) []result.Row {
	n := attributes(t, "^(TestRequests|TestRequestsOfAHold)$")
	row := func(name, key string, goal float64, note string) result.Row {
		return result.Row{Name: "A commit of one file, published: " + name, Value: of(t, n, key), Goal: goal, Ratio: true, Note: note}
	}
	return []result.Row{
		row("PUTs for the file", "TestRequests put-of-file", 1, ""),
		row("PUTs for the edit", "TestRequests put-of-edit", 1, ""),
		row("LISTs for the source", "TestRequests list-manifest/", 1, ""),
		row("GETs for the source", "TestRequests get-data/", 2, ""),
		row("GETs for the new file's footer", "TestRequests get-file/0", -1, "the goals do not name it; with it they are 3 for a source that has one new file"),
		row("LISTs shared by all sources", "TestRequests list-file/_delta_log/", 1, ""),
		row("GETs shared by all sources", "TestRequests get-file/_delta_log/", 2, ""),
		row("PUTs shared by all sources", "TestRequests put-file/_delta_log/", 1, ""),
		row("PUTs for the hold, when it moves", "TestRequestsOfAHold put-pin", 2, "16 times in each retention, and not for each commit"),
		row("DELETEs for the hold, when it moves", "TestRequestsOfAHold delete-pin", 1, ""),
		row("LISTs for the source, when its hold moves", "TestRequestsOfAHold list-source", 1, "it also shows that the pin holds"),
		row("GETs for the source, when its hold moves", "TestRequestsOfAHold get-source", 2, ""),
		row("GETs for the new file's footer, when the hold moves", "TestRequestsOfAHold get-footer", -1, ""),
		row("LISTs shared by all sources, when a hold moves", "TestRequestsOfAHold list-table", 1, "it also finds what can be let go of"),
		row("GETs shared by all sources, when a hold moves", "TestRequestsOfAHold get-table", 2, "what can be let go of is remembered"),
		row("GETs shared by all sources, when a hold moves and the Delta log is cleaned", "TestRequestsOfAHold get-clean", 2, "the checkpoint that stays, and the hint of the last one"),
		row("PUTs shared by all sources, when a hold moves", "TestRequestsOfAHold put-table", 1, ""),
		row("GETs for the source, in a round that finds a newer manifest", "TestRequestsOfAHold get-newer", 2, "whether its hold moves or not; guard read-absent needs the manifest. A leader with commits publishes one each 10 s"),
		row("LISTs for the source, when all its pins are listed", "TestRequestsOfAHold list-sweep", 1, "twice in each retention, in a round that finds no edit; and a GET for each pin"),
	}
}

// publishes are the costs of a large table.
func publishes(t *testing.T) []result.Row {
	n := attributes(t, "^TestCost$", "-files", "100000")
	const name = "Publish with 100,000 active files, one added: "
	requests, small := of(t, n, "TestCost requests"), of(t, n, "TestCost requests-of-small")
	return []result.Row{
		{Name: name + "seconds", Value: of(t, n, "TestCost seconds"), Goal: 2},
		{Name: name + "seconds of the processor", Value: of(t, n, "TestCost processor"), Goal: -1},
		{Name: name + "MiB of heap", Value: of(t, n, "TestCost MiB"), Goal: 256},
		{Name: name + "requests, to those with 1,000", Value: requests / small, Goal: 1.5, Ratio: true, Note: result.Number(requests) + " to " + result.Number(small)},
	}
}

// publishers are ten at once.
func publishers(t *testing.T) []result.Row {
	n := attributes(t, "^(TestTenPublishers|TestTenPublishersOfTen)$")
	return []result.Row{
		{Name: "10 publishers of 10 logs, all logs commit at once: rounds of each publisher until all logs are published, at most", Value: of(t, n, "TestTenPublishersOfTen rounds"), Goal: 3, Ratio: true},
		{Name: "10 publishers of 10 logs: tries for a version", Value: of(t, n, "TestTenPublishersOfTen tries"), Goal: 2, Ratio: true},
		{Name: "10 publishers of one log: rounds of each publisher until it has seen a commit published, at most", Value: of(t, n, "TestTenPublishers rounds"), Goal: 3, Ratio: true},
		{Name: "10 publishers of one log: tries for a version", Value: of(t, n, "TestTenPublishers tries"), Goal: 2, Ratio: true},
		{Name: "10 publishers of one log: p50 of the lag, s", Value: of(t, n, "TestTenPublishers lag"), Goal: -1},
	}
}
