package backup_test

import (
	"flag"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/backup"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

var days = flag.Int("days", 4, "how many days of virtual time TestWhatGrows takes; docs/sizing.md has what 30 gave")

// weigh counts the objects of a store, and their bytes.
func weigh(t *testing.T, st store.Store) (objects int, bytes int64) {
	t.Helper()
	for info, err := range store.ListAll(t.Context(), st, "", nil, nil) {
		if err != nil {
			t.Fatal(err)
		}
		objects, bytes = objects+1, bytes+info.Size
	}
	return objects, bytes
}

// TestWhatGrows measures what a backup a day costs, always into the same destination: of a log with a record of 1 KiB
// each five minutes and a file of 64 KiB an hour that replaces the one before, which is compacted each
// hour. It keeps all its records, or those of two days. Records and files do not compress.
func TestWhatGrows(t *testing.T) {
	for name, keeps := range map[string]time.Duration{"all records are kept": 0, "records of two days are kept": 48 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			logtest.Bubble(t, logtest.WithGrace(manifest.DefaultGrace), func(t *testing.T, log *logtest.Log) {
				ctx, to := t.Context(), memstore.New(&memstore.Options{Clock: clock.Go()})
				c, err := compactor.New(log.Mem, &compactor.Options{Token: fence.NewToken(1), Settle: logtest.Quick, Clock: clock.Go(), Retain: compactor.Retain{Age: keeps}})
				check(t, err)
				noise := rand.NewChaCha8([32]byte{})
				random := func(n int) []byte {
					b := make([]byte, n)
					_, _ = noise.Read(b)
					return b
				}
				old := ""
				for day := 1; day <= *days; day++ {
					log.Epoch++
					w, err := writer.Open(ctx, log.Mem, fence.NewToken(log.Epoch), &writer.Options{Settle: logtest.Quick, Clock: clock.Go()})
					check(t, err)
					for i := range 24 * 12 {
						_, err := w.Append(ctx, [][]byte{random(1024)})
						check(t, err)
						if i%12 == 0 {
							f, err := w.CreateFile(ctx, ".x", 0)
							check(t, err)
							_, err = f.Write(random(64 << 10))
							check(t, err)
							check(t, f.Close())
							edit := manifest.Edit{Add: []manifest.File{f.File()}}
							if old != "" {
								edit.Remove = []string{old}
							}
							check(t, w.CommitFiles(ctx, edit))
							old = f.File().Key
							_, err = c.Once(ctx)
							check(t, err)
						}
						time.Sleep(5 * time.Minute)
						synctest.Wait()
					}
					check(t, w.Close(ctx))
					_, err = backup.Make(ctx, log.Mem, to, nil)
					check(t, err)
					objects, bytes := weigh(t, log.Mem)
					kept, size := weigh(t, to)
					fresh := memstore.New(&memstore.Options{Clock: clock.Go()})
					_, err = backup.Make(ctx, log.Mem, fresh, nil)
					check(t, err)
					anew, least := weigh(t, fresh)
					if day == 1 || day%5 == 0 || day == *days {
						t.Logf("day %d: the log has %d objects of %d bytes, its backup %d of %d; a new one would have %d of %d", day, objects, bytes, kept, size, anew, least)
					}
					if kept < anew || size < least {
						t.Errorf("day %d: the backup has %d objects of %d bytes, and a new one %d of %d", day, kept, size, anew, least)
					}
				}
			})
		})
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
