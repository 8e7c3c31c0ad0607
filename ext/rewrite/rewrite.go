package rewrite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/writer"
)

// Func reads all rows of some files and writes them to out, as one file. It returns how many
// records that has, if the application counts them, and entries for its Meta. The new file also has
// those entries on which the Meta of all files agree, such as the values of a partition; an entry
// that the function returns counts more. The function must write all rows of all files and no
// others. It may be called again for the same files.
//
// Somebody else may have written a file. Bound what reading it takes before a library reads it: for Parquet,
// delta.CheckParquet does.
type Func func(ctx context.Context, out io.Writer, in []Input) (records uint64, meta map[string]string, err error)

// Input is a file to read.
type Input struct {
	manifest.File
	// Data has the content. Its checksum is checked when the function has returned.
	Data *reader.File
}

// Rewriter merges small files of a table. Its methods are for one goroutine.
type Rewriter struct {
	w       *writer.Writer
	r       *reader.Reader
	rewrite Func
	opts    Options // with defaults
}

// New returns a rewriter that commits through w what it has read through r. Both are of the
// same log. It does no I/O. The error is [ErrOptions].
func New(w *writer.Writer, r *reader.Reader, rewrite Func, opts *Options) (*Rewriter, error) {
	if w == nil || r == nil || rewrite == nil {
		return nil, fmt.Errorf("%w: a rewriter needs a writer, a reader and a function", ErrOptions)
	}
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	return &Rewriter{w, r, rewrite, opts.withDefaults()}, nil
}

// Run merges files whenever there are enough, until ctx ends or the writer does. It returns
// nil when ctx has ended, or what writer.Writer.Err says. After any other error it goes on an Interval
// later: [Options.Logger] tells.
func (r *Rewriter) Run(ctx context.Context) error {
	for {
		_, err := r.Once(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // ctx has ended, which is no failure
		case r.w.Err() != nil:
			return r.w.Err()
		case err != nil:
			r.opts.Logger.Warn("cannot merge files; trying again", zap.Duration("in", r.opts.Interval), zap.Error(err))
		}
		if clock.Sleep(ctx, r.opts.Clock, r.opts.Interval) != nil {
			return nil //nolint:nilerr // likewise
		}
	}
}

// Once merges files until there is nothing to merge, and returns what it did. If another
// commit removes one of the files meanwhile, that rewrite is given up, and Once chooses again,
// ten times at most.
//
// Errors: those of the application's function, which end Once; [ErrRecords]; fence.ErrCorrupt if
// a file is damaged; those of
// writer.Writer.CommitFiles and reader.Reader.Snapshot. What was committed before stays.
//
// If nothing is to be done it costs what an unpinned snapshot costs. A rewrite costs its
// reading, one upload and one edit; each choice, a pin. What the function has not read to its
// end by Input.Data.Read, such as a file that it reads by ReadAt, is read once more, for its
// checksum.
func (r *Rewriter) Once(ctx context.Context) ([]Rewrite, error) {
	begun := r.opts.Clock.Now()
	done, err := r.pass(ctx)
	if r.opts.Hooks.Passed != nil {
		r.opts.Hooks.Passed(Pass{Rewrites: done, Err: err, Took: r.opts.Clock.Now().Sub(begun)})
	}
	return done, err
}

func (r *Rewriter) pass(ctx context.Context) (done []Rewrite, err error) {
	for void := 0; ; void++ {
		// Without a pin first, which writes nothing.
		if some, err := r.anything(ctx); !some || err != nil {
			return done, err
		}
		more, conflict, err := r.round(ctx)
		done = append(done, more...)
		switch {
		case err != nil:
			return done, err
		case len(more) > 0:
			void = 0
		case void >= voidRounds:
			return done, conflict
		}
	}
}

// voidRounds is how many rounds may end without a rewrite, because other commits have removed
// the files each time.
const voidRounds = 10

// anything reports whether there is something to merge.
func (r *Rewriter) anything(ctx context.Context) (bool, error) {
	chosen, s, err := r.choose(ctx, &reader.SnapshotOptions{Unpinned: true})
	if err != nil {
		return false, err
	}
	return len(chosen) > 0, s.Close(ctx)
}

// choose takes a snapshot, and chooses what to merge.
func (r *Rewriter) choose(ctx context.Context, opts *reader.SnapshotOptions) ([][]manifest.File, *reader.Snapshot, error) {
	s, err := r.r.Snapshot(ctx, opts)
	if err != nil {
		return nil, nil, err
	}
	var live []manifest.File
	for f, err := range s.Files(ctx) {
		if err != nil {
			return nil, nil, errors.Join(err, s.Close(ctx))
		}
		live = append(live, f)
	}
	return Choose(live, &r.opts), s, nil
}

// round makes the rewrites that one snapshot leads to. Conflict is why the last one of those
// that were given up was.
func (r *Rewriter) round(ctx context.Context) (done []Rewrite, conflict, err error) {
	chosen, s, err := r.choose(ctx, &reader.SnapshotOptions{Name: "rewrite"})
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err := s.Close(context.WithoutCancel(ctx)); err != nil {
			r.opts.Logger.Warn("the pin of a rewrite lapses later", zap.Error(err))
		}
	}()
	for _, files := range chosen {
		made, err := r.one(ctx, s, files)
		if errors.Is(err, writer.ErrConflict) {
			r.opts.Logger.Info("a file that was being merged was removed meanwhile; choosing again", zap.Error(err))
			conflict = err
			continue
		}
		if err != nil {
			return done, nil, err
		}
		done = append(done, made)
		r.opts.Logger.Info("merged files", zap.Int("files", len(files)), zap.String("into", made.File.Key), zap.Int64("bytes", made.File.Size))
		if r.opts.Hooks.Rewritten != nil {
			r.opts.Hooks.Rewritten(made)
		}
	}
	return done, conflict, nil
}

// one replaces some files by one.
func (r *Rewriter) one(ctx context.Context, s *reader.Snapshot, files []manifest.File) (Rewrite, error) {
	ext := r.opts.Ext
	if ext == "" {
		ext = extension(files[0].Key)
	}
	f, err := r.write(ctx, s, files, ext)
	if err != nil {
		return Rewrite{}, err
	}
	keys := make([]string, len(files))
	for i := range files {
		keys[i] = files[i].Key
	}
	if err := f.SetReplaces(keys); err != nil {
		return Rewrite{}, fmt.Errorf("rewrite: %s: the names of the files that it replaces do not fit beside its meta; lower Options.MaxFiles: %w", f.Key, err)
	}
	// guard:rewrite-one-edit. One edit adds the new file of a rewrite and removes the files that it
	// replaces.
	//
	//mutant:replace r.w.CommitFiles(ctx, manifest.Edit{Add: []manifest.File{f}, Remove: keys}) => errors.Join(r.w.CommitFiles(ctx, manifest.Edit{Add: []manifest.File{f}}), r.w.CommitFiles(ctx, manifest.Edit{Remove: keys}))
	if err := r.w.CommitFiles(ctx, manifest.Edit{Add: []manifest.File{f}, Remove: keys}); err != nil {
		return Rewrite{}, err
	}
	return Rewrite{f, files}, nil
}

// write makes the new file.
func (r *Rewriter) write(ctx context.Context, s *reader.Snapshot, files []manifest.File, ext string) (manifest.File, error) {
	in, want, counted := make([]Input, len(files)), uint64(0), true
	for i, f := range files {
		data, err := s.Open(ctx, f)
		if err != nil {
			return manifest.File{}, err
		}
		in[i] = Input{f, data}
		want += f.Records
		counted = counted && f.Records > 0
	}
	out, err := r.w.CreateFile(ctx, ext, 0)
	if err != nil {
		return manifest.File{}, err
	}
	defer out.Abort() // without effect once it is complete
	records, meta, err := r.rewrite(ctx, out, in)
	if err != nil {
		return manifest.File{}, fmt.Errorf("rewrite: merging %d files into %s: %w", len(files), out.Key(), err)
	}
	// guard:rewrite-sum. A rewrite is committed only if each file that it has read has the checksum
	// that the table says.
	//
	//mutant:replace io.Copy(io.Discard, f.Data); err != nil => io.Copy(io.Discard, f.Data); false
	for _, f := range in {
		// What the function has read by Read is not read again.
		if _, err := io.Copy(io.Discard, f.Data); err != nil {
			return manifest.File{}, fmt.Errorf("rewrite: %s: %w", out.Key(), err)
		}
	}
	// guard:rewrite-records. If the table has a count for each file that a rewrite replaces, the
	// application's count of the new file must be their sum.
	//
	//mutant:replace counted && records != want => false
	if counted && records != want {
		return manifest.File{}, fmt.Errorf("%w: the function has written %d records into %s, and the %d files that it read have %d", ErrRecords, records, out.Key(), len(files), want)
	}
	if err := out.Close(); err != nil {
		return manifest.File{}, err
	}
	f := out.File()
	f.Records, f.Meta = records, carried(files, meta)
	return f, nil
}

// extension is that of a file's name, from the first dot on.
func extension(key string) string {
	name := path.Base(key)
	for i, c := range name {
		if c == '.' {
			return name[i:]
		}
	}
	return ""
}
