package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
)

// TestWatchingBegins: one store of several that does not answer keeps nobody from watching the others. That a look
// fails is said, and so is that it succeeds again.
func TestWatchingBegins(t *testing.T) {
	good, bad := newLog(t, memURL(t)+"/good"), newLog(t, memURL(t)+"/bad")
	var away atomic.Bool
	away.Store(true)
	open := func(ctx context.Context, url string) (store.Store, error) {
		st, err := store.Open(ctx, url)
		f := faultstore.New(st, nil)
		f.SetHook(func(faultstore.Op) faultstore.Fault {
			if away.Load() && url == bad {
				return faultstore.Fault{Drop: true, Err: io.ErrUnexpectedEOF}
			}
			return faultstore.Fault{}
		})
		return f, err
	}
	for _, verb := range []string{"exporter", "serve"} {
		away.Store(true)
		address, errs, stop := backgroundOn(t, open, nil, verb, "--timeout", "100ms", "--listen", "127.0.0.1:0", "--requests-per-minute", "6000", good, bad)
		up := regexp.MustCompile(`fencepost_watch_up{url="[^"]*/good"} 1\n`)
		eventually(t, "the good one is up", func() bool {
			_, body := get(t, address+"/metrics")
			return up.MatchString(body)
		})
		eventually(t, "it says that the other fails", func() bool {
			return strings.Contains(errs.String(), "watching goes on, and tries again") && strings.Contains(errs.String(), bad+": ") && strings.Contains(errs.String(), "; looking again\n")
		})
		eventually(t, "it is ready, although one is missing", func() bool {
			status, _ := get(t, address+"/readyz")
			return status == 200
		})
		away.Store(false)
		eventually(t, "it says that it is back", func() bool { return strings.Contains(errs.String(), bad+" is read again\n") })
		eventually(t, "it is ready", func() bool {
			status, _ := get(t, address+"/readyz")
			return status == 200
		})
		stop()
	}
}

// TestWatchingADirectoryThatIsMissing: it keeps nobody from watching the others, is not made, and is watched when it
// is there.
func TestWatchingADirectoryThatIsMissing(t *testing.T) {
	good, missing := newLog(t, memURL(t)), fileURL(t)
	dir := strings.TrimPrefix(missing, "file://")
	up := func(url, value string) *regexp.Regexp {
		return regexp.MustCompile(`fencepost_watch_up{url="` + regexp.QuoteMeta(url) + `"} ` + value + `\n`)
	}
	address, errs, _ := background(t, nil, "exporter", "--listen", "127.0.0.1:0", "--requests-per-minute", "6000", good, missing)
	eventually(t, "the good one is up, and the other not", func() bool {
		_, body := get(t, address+"/metrics")
		return up(good, "1").MatchString(body) && up(missing, "0").MatchString(body)
	})
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(errs.String(), "watching goes on, and tries again") {
		t.Errorf("%v, %s", err, errs)
	}
	newLog(t, missing)
	eventually(t, "it is up", func() bool {
		_, body := get(t, address+"/metrics")
		return up(missing, "1").MatchString(body)
	})
}

// TestWatchingADirectoryThatIsReplaced: the log that is there then is watched. That it was away is said.
func TestWatchingADirectoryThatIsReplaced(t *testing.T) {
	for name, begins := range map[string]func(t *testing.T, url string){
		"there from the beginning": func(t *testing.T, url string) { newLog(t, url) },
		"there later":              func(*testing.T, string) {},
	} {
		t.Run(name, func(t *testing.T) {
			url, other := fileURL(t), newLog(t, fileURL(t))
			dir, next := strings.TrimPrefix(url, "file://"), strings.TrimPrefix(other, "file://")
			begins(t, url)
			address, errs, _ := background(t, nil, "exporter", "--listen", "127.0.0.1:0", "--requests-per-minute", "6000", url)
			is := func(value string) func() bool {
				up := regexp.MustCompile(`fencepost_watch_up{url="` + regexp.QuoteMeta(url) + `"} ` + value + `\n`)
				return func() bool {
					_, body := get(t, address+"/metrics")
					return up.MatchString(body)
				}
			}
			if _, err := os.Stat(dir); err != nil {
				eventually(t, "it is not there", is("0"))
				newLog(t, url)
			}
			eventually(t, "it is up", is("1"))
			if err := os.Rename(dir, dir+".old"); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it is away", is("0"))
			if err := os.Rename(next, dir); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it is up again", is("1"))
			eventually(t, "it is said", func() bool { return strings.Contains(errs.String(), url+" is read again\n") })
		})
	}
}

// TestWatchingMakesNoDirectory: nor does one whose store did not answer at first.
func TestWatchingMakesNoDirectory(t *testing.T) {
	var opened atomic.Pointer[string]
	open := func(ctx context.Context, url string) (store.Store, error) {
		opened.Store(&url)
		st, err := store.Open(ctx, memURL(t))
		f := faultstore.New(st, nil)
		f.SetHook(func(faultstore.Op) faultstore.Fault { return faultstore.Fault{Drop: true, Err: io.ErrUnexpectedEOF} })
		return f, err
	}
	_, _, stop := backgroundOn(t, open, nil, "exporter", "--timeout", "100ms", "--listen", "127.0.0.1:0", fileURL(t))
	stop()
	if url := *opened.Load(); !strings.HasSuffix(url, "?create=false") {
		t.Error(url)
	}
}
