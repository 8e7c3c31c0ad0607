//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"strings"
	"sync"
	"syscall"

	"github.com/fencepost/fencepost/store"
)

// stage stands between a worker of the story and its stores. It makes the worst moment happen: a file
// is uploaded, the request that commits it has left the writer, and there the process is killed or
// frozen. Nothing else of the worker knows of it.
type stage struct {
	report func(event)

	mu       sync.Mutex
	next     string            // "freeze", "kill", or empty
	uploaded map[string]string // by folder, "<log>/<epoch>": the last file that is not committed yet
	folders  map[string]string // by prefix of the keys of an epoch's commits: the folder of its files
}

func newStage(report func(event)) *stage {
	return &stage{report: report, uploaded: map[string]string{}, folders: map[string]string{}}
}

// opened tells the stage which commits belong to which files.
func (s *stage) opened(partition int, epoch uint64, folder string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.folders[fmt.Sprintf("partition/%06d/data/%020d/", partition, epoch)] = folder
}

// arm sets what happens to the next commit.
func (s *stage) arm(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = what
}

// due returns what is to happen to a request now, and the file that it would commit.
func (s *stage) due(key string) (what, file string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dir, _ := path.Split(key)
	folder, ok := s.folders[dir]
	if !ok || s.uploaded[folder] == "" {
		return "", ""
	}
	what, file = s.next, s.uploaded[folder]
	s.next, s.uploaded[folder] = "", ""
	return what, file
}

// logsOn is the store of the logs.
type logsOn struct {
	store.Store
	*stage
}

// Unwrap implements [store.Wrapper].
func (l logsOn) Unwrap() store.Store { return l.Store }

func (l logsOn) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	what, file := l.due(key)
	switch what {
	case "kill":
		l.report(event{What: "dies", Key: key, File: file})
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "freeze":
		awake := make(chan os.Signal, 1)
		signal.Notify(awake, syscall.SIGCONT)
		l.report(event{What: "freezes", Key: key, File: file})
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		<-awake
		signal.Stop(awake)
		// The request is on its way. Nobody calls it back, though the worker finds at once that its
		// time is over.
		info, err := l.Store.Put(context.WithoutCancel(ctx), key, body, opts)
		l.report(event{What: "answered", Key: key, File: file, Refused: errors.Is(err, store.ErrPrecondition), Text: fmt.Sprint(err)})
		return info, err
	}
	return l.Store.Put(ctx, key, body, opts)
}

// filesOn is the store of the files.
type filesOn struct {
	store.Store
	*stage
}

// Unwrap implements [store.Wrapper].
func (f filesOn) Unwrap() store.Store { return f.Store }

func (f filesOn) Upload(ctx context.Context, key string, body io.Reader, opts *store.UploadOptions) (store.Info, error) {
	info, err := f.Store.Upload(ctx, key, body, opts)
	if err == nil && strings.HasSuffix(key, ".parquet") {
		f.mu.Lock()
		f.uploaded[path.Dir(key)] = key
		f.mu.Unlock()
		f.report(event{What: "uploaded", File: key})
	}
	return info, err
}
