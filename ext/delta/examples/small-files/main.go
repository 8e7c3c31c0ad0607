package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ext/rewrite"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

// row is a row of the table.
type row struct {
	N    int64  `parquet:"n"`
	Text string `parquet:"text"`
}

// inFile is how many rows a small file has.
const inFile = 100

func main() {
	log.SetFlags(0)
	url := flag.String("store", "", "URL of the log; by default a temporary directory")
	n := flag.Int("files", 200, "how many small files to commit")
	flag.Parse()
	if err := run(context.Background(), *url, *n); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url string, n int) error {
	if url == "" {
		dir, err := os.MkdirTemp("", "small-files")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		url = "file://" + dir
	}
	st, err := store.Open(ctx, url)
	if err != nil {
		return err
	}
	return story(ctx, st, n, log.New(os.Stdout, "", 0))
}

// story commits n files and merges them, and tells what becomes of the table. The merging is a
// goroutine of its own and tells too: a Logger writes one line at a time.
func story(ctx context.Context, st store.Store, n int, tell *log.Logger) error {
	return fencepost.Run(ctx, st, nil, func(ctx context.Context, s *fencepost.Session) error {
		r, err := reader.Open(ctx, st, nil)
		if err != nil {
			return err
		}
		say := func(m rewrite.Rewrite) {
			tell.Printf("merged %2d files of %7d bytes into one of %7d", len(m.Replaced), bytesOf(m.Replaced), m.File.Size)
		}
		m, err := rewrite.New(s.Writer, r, merge, &rewrite.Options{Target: 1 << 20, Interval: 50 * time.Millisecond, Hooks: rewrite.Hooks{Rewritten: say}})
		if err != nil {
			return err
		}
		merging, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = m.Run(merging) // it returns why it was stopped
		}()
		defer func() {
			stop()
			<-ended
		}()
		for i := range n {
			if err := commit(ctx, s.Writer, int64(i*inFile)); err != nil {
				return err
			}
			if i%50 == 49 {
				if err := look(ctx, r, int64(i+1)*inFile, tell); err != nil {
					return err
				}
			}
		}
		stop()
		<-ended
		if _, err := m.Once(ctx); err != nil { // what is left
			return err
		}
		return look(ctx, r, int64(n)*inFile, tell)
	})
}

func bytesOf(files []manifest.File) (sum int64) {
	for _, f := range files {
		sum += f.Size
	}
	return sum
}

// commit adds a small file to the table.
func commit(ctx context.Context, w *writer.Writer, first int64) error {
	f, err := w.CreateFile(ctx, ".parquet", 0)
	if err != nil {
		return err
	}
	defer f.Abort() // without effect once it is complete
	rows := make([]row, inFile)
	for i := range rows {
		n := first + int64(i)
		rows[i] = row{n, fmt.Sprintf("row %d", n)}
	}
	if err := parquet.Write(f, rows); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	file := f.File()
	file.Records = inFile
	return w.CommitFiles(ctx, manifest.Edit{Add: []manifest.File{file}})
}

// readAll reads all rows of a file.
func readAll(f *reader.File) ([]row, error) {
	file, err := open(f)
	if err != nil {
		return nil, err
	}
	r := parquet.NewGenericReader[row](file)
	defer func() { _ = r.Close() }()
	rows := make([]row, r.NumRows())
	n, err := r.Read(rows)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if n < len(rows) {
		return nil, fmt.Errorf("%w: %d of %d rows", io.ErrUnexpectedEOF, n, len(rows))
	}
	return rows, nil
}

// look reads the whole table, which must have the rows 0 to n-1.
func look(ctx context.Context, r *reader.Reader, n int64, tell *log.Logger) error {
	s, err := r.Snapshot(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close(ctx) }()
	var rows, sum int64
	for f, err := range s.Files(ctx) {
		if err != nil {
			return err
		}
		file, err := s.Open(ctx, f)
		if err != nil {
			return err
		}
		all, err := readAll(file)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Key, err)
		}
		for _, r := range all {
			rows++
			sum += r.N
		}
	}
	if want := n * (n - 1) / 2; rows != n || sum != want {
		return fmt.Errorf("the table has %d rows with the sum %d, and must have %d with the sum %d", rows, sum, n, want)
	}
	tell.Printf("a reader sees %5d rows in %2d files, each row once", rows, s.Live())
	return nil
}
