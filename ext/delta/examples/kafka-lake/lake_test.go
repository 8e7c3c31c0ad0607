package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/store/probe"
	"github.com/fencepost/fencepost/writer"
)

// world is a Kafka with a topic of one partition, and stores. It has no group: a test opens the owners'
// writers itself, one after the other or two at once.
type world struct {
	*testing.T
	kafka       *kfake.Cluster
	client      *kgo.Client
	logs, table *faultstore.Store
	ledger      *ledger
	epoch       uint64
}

const topic = "orders"

var quickProbe = &probe.Options{Clients: 2, Rounds: 1, Keys: 2, Refusals: 2, UploadSize: 1}

func newWorld(t *testing.T) *world {
	kafka, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, topic))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kafka.Close)
	w := &world{T: t, kafka: kafka, logs: faultstore.New(memstore.New(nil), nil), table: faultstore.New(memstore.New(nil), nil), ledger: newLedger(1)}
	w.client = w.kgo()
	return w
}

func (w *world) kgo(opts ...kgo.Opt) *kgo.Client {
	w.Helper()
	c, err := kgo.NewClient(append(opts, kgo.SeedBrokers(w.kafka.ListenAddrs()...), kgo.DefaultProduceTopic(topic))...)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(c.Close)
	return c
}

// produce produces so many messages.
func (w *world) produce(n int) {
	w.Helper()
	for i := range n {
		w.ledger.settled.Add(1)
		m, err := w.client.ProduceSync(w.Context(), message(w.ledger.n+i)).First()
		if err != nil {
			w.Fatal(err)
		}
		w.ledger.add(m, nil)
	}
}

// owner is a process that owns the partition, by its own belief.
type owner struct {
	*world
	lake      *lake
	w         *writer.Writer
	committed chan cursor
	stop      context.CancelFunc
	ended     chan error
}

// own opens the log of the partition in the next epoch.
func (w *world) own(name string, rows uint64, flush time.Duration) *owner {
	w.Helper()
	w.epoch++
	log, err := group.PartitionStore(w.logs.Client(name), 0)
	if err != nil {
		w.Fatal(err)
	}
	files := store.Store(w.table.Client(name))
	o := &owner{world: w, committed: make(chan cursor, 1000), ended: make(chan error, 1)}
	o.w, err = writer.Open(w.Context(), log, fence.NewToken(fence.Epoch(w.epoch)), &writer.Options{Files: files, Hedge: -1, Init: &manifest.InitOptions{Files: files, Probe: quickProbe}})
	if err != nil {
		w.Fatal(err)
	}
	o.lake = &lake{brokers: w.kafka.ListenAddrs(), topic: topic, table: files, rows: rows, flush: flush, committed: func(at cursor, _ uint64) { o.committed <- at }}
	return o
}

// copy copies until it fails, or until end.
func (o *owner) copy() *owner {
	ctx, stop := context.WithCancel(o.Context())
	o.stop = stop
	var once sync.Once
	o.Cleanup(func() { once.Do(func() { stop(); <-o.ended }) })
	go func() {
		err := o.lake.copyPartition(ctx, o.w, 0)
		o.ended <- err
		close(o.ended)
	}()
	return o
}

// reaches waits until the owner has committed up to an offset.
func (o *owner) reaches(offset int64) *owner {
	o.Helper()
	for {
		select {
		case at := <-o.committed:
			if at.Offset >= offset {
				return o
			}
		case err := <-o.ended:
			o.Fatalf("it ended before it reached %d: %v", offset, err)
		case <-o.Context().Done():
			o.Fatal(o.Context().Err())
		}
	}
}

// fails waits until the copying ends, and checks why.
func (o *owner) fails(want error) {
	o.Helper()
	if err := <-o.ended; !errors.Is(err, want) {
		o.Fatalf("it ended with %v, want %v", err, want)
	}
}

func (o *owner) close() {
	o.stop()
	<-o.ended
	_ = o.w.Close(o.Context())
}

// published publishes, and returns the table.
func (w *world) published() *deltaTable {
	w.Helper()
	p, err := publisher(w.Context(), w.logs, w.table, 1, &delta.Options{})
	if err != nil {
		w.Fatal(err)
	}
	r, err := p.Publish(w.Context())
	if err = errors.Join(err, r.Err()); err != nil {
		w.Fatal(err)
	}
	t := newDeltaTable(w.table)
	if err := t.read(w.Context()); err != nil {
		w.Fatal(err)
	}
	return t
}

// exactly checks that the table has each message once.
func (w *world) exactly() *deltaTable {
	w.Helper()
	t := w.published()
	if err := t.prefixes(); err != nil {
		w.Error(err)
	}
	v := w.ledger.compare(t.newest)
	if err := v.err(); err != nil {
		w.Error(err)
	}
	return t
}

// files are the Parquet files in the store.
func (w *world) files() (all []string) {
	w.Helper()
	for info, err := range store.ListAll(w.Context(), w.table, "", nil, nil) {
		if err != nil {
			w.Fatal(err)
		}
		if strings.HasSuffix(info.Key, ".parquet") && !strings.HasPrefix(info.Key, "_") {
			all = append(all, info.Key)
		}
	}
	return all
}

// commits is a rule for the commits of an epoch: all but the first, which has only the cursor.
func commits(epoch fence.Epoch, f faultstore.Fault) faultstore.Rule {
	skip := 0
	if epoch == 1 {
		skip = 1
	}
	return faultstore.Rule{Kind: faultstore.Put, Prefix: fmt.Sprintf("partition/000000/data/%020d/", epoch), Skip: skip, Fault: f}
}

const never = time.Hour

// TestCrashBetweenUploadAndCommit: the file is there, and the table has nothing of it. The next owner
// reads its messages again.
func TestCrashBetweenUploadAndCommit(t *testing.T) {
	w := newWorld(t)
	w.logs.SetHook(faultstore.Script(commits(1, faultstore.Fault{Drop: true, Crash: true})))
	w.produce(10)
	w.own("a", 10, never).copy().fails(faultstore.ErrCrashed)
	orphans := w.files()
	if len(orphans) != 1 {
		t.Fatalf("%q is uploaded, want one file", orphans)
	}
	b := w.own("b", 10, never)
	if at, err := decodeCursor(b.w.Recovered().Cursor, 0); err != nil || at.Offset != 0 {
		t.Fatalf("b begins at %+v, %v", at, err)
	}
	b.copy().reaches(10)
	w.produce(10)
	b.reaches(20).close()
	if table := w.exactly(); table.names(orphans[0]) || len(w.files()) != 3 {
		t.Errorf("the table has %v, and %q is left over", table.versions, orphans)
	}
}

// TestLostAnswer: the commit is applied and its answer is lost. The writer finds out, and goes on.
func TestLostAnswer(t *testing.T) {
	w := newWorld(t)
	w.logs.SetHook(faultstore.Script(commits(1, faultstore.Fault{Err: faultstore.ErrReset})))
	w.produce(10)
	a := w.own("a", 10, never).copy().reaches(10)
	w.produce(10)
	a.reaches(20).close()
	if w.exactly(); len(w.files()) != 2 {
		t.Errorf("%d files, want 2", len(w.files()))
	}
}

// TestLostAnswerAndCrash: the commit is applied, its answer is lost, and the owner dies. The next owner
// begins after it. The sink of apache/iceberg#17340 commits the same files a second time when it is
// restarted after a commit.
func TestLostAnswerAndCrash(t *testing.T) {
	w := newWorld(t)
	w.logs.SetHook(faultstore.Script(commits(1, faultstore.Fault{Crash: true})))
	w.produce(10)
	w.own("a", 10, never).copy().fails(faultstore.ErrCrashed)
	b := w.own("b", 10, never)
	if at, err := decodeCursor(b.w.Recovered().Cursor, 0); err != nil || at.Offset != 10 {
		t.Fatalf("b begins at %+v, %v", at, err)
	}
	w.produce(10)
	b.copy().reaches(20).close()
	if w.exactly(); len(w.files()) != 2 {
		t.Errorf("%d files, want 2", len(w.files()))
	}
}

// TestLateCommit: the owner gives up, and its commit is still on the way. It lands when the next owner has
// copied the same messages.
func TestLateCommit(t *testing.T) {
	w := newWorld(t)
	w.logs.SetHook(faultstore.Script(commits(1, faultstore.Fault{Drop: true, Crash: true, Late: &faultstore.Late{}})))
	w.produce(10)
	w.own("a", 10, never).copy().fails(faultstore.ErrCrashed)
	w.own("b", 10, never).copy().reaches(10).close()
	if n := w.logs.Release(t.Context(), nil); n != 1 {
		t.Fatalf("%d requests land late, want 1", n)
	}
	w.exactly()
}

// sleeps lets whoever sends a request that fits sleep before it, until wake is closed. The first one closes asleep.
func sleeps(st *faultstore.Store, fits func(faultstore.Op) bool) (asleep, wake chan struct{}) {
	asleep, wake = make(chan struct{}), make(chan struct{})
	var once sync.Once
	st.SetHook(func(op faultstore.Op) faultstore.Fault {
		if !fits(op) {
			return faultstore.Fault{}
		}
		once.Do(func() { close(asleep) })
		return faultstore.Fault{Hold: wake}
	})
	return asleep, wake
}

// TestZombieMovesNoCursor: an owner sleeps before its commit. When it wakes up the next owner is further.
// In the sink of apache/iceberg#17551 such a commit takes the offset back, and messages that Kafka has
// deleted meanwhile are lost.
func TestZombieMovesNoCursor(t *testing.T) {
	w := newWorld(t)
	asleep, wake := sleeps(w.logs, func(op faultstore.Op) bool {
		return op.Client == "a" && op.Kind == faultstore.Put && op.Size > 0 && strings.HasPrefix(op.Key, fmt.Sprintf("partition/000000/data/%020d/", 1)) && len(w.files()) > 0
	})
	w.produce(10)
	a := w.own("a", 10, never).copy()
	<-asleep
	b := w.own("b", 10, never).copy().reaches(10)
	w.produce(10)
	b.reaches(20).close()
	close(wake)
	a.fails(writer.ErrFenced)
	c := w.own("c", 10, never)
	if at, err := decodeCursor(c.w.Recovered().Cursor, 0); err != nil || at.Offset != 20 {
		t.Errorf("the zombie has moved the cursor to %+v, %v", at, err)
	}
	w.exactly()
}

// TestZombieReplacesNoFile: an owner sleeps before it uploads a file. Meanwhile the next owner uploads and
// commits a longer one, which begins with the same message. In the sink of
// confluentinc/kafka-connect-storage-cloud#800 and #253 both files have the same name, so the zombie's
// replaces the other, and messages are lost.
func TestZombieReplacesNoFile(t *testing.T) {
	w := newWorld(t)
	asleep, wake := sleeps(w.table, func(op faultstore.Op) bool {
		return op.Client == "a" && op.Kind == faultstore.Upload && strings.HasSuffix(op.Key, ".parquet")
	})
	w.produce(10)
	a := w.own("a", 10, never).copy()
	<-asleep
	w.produce(10)
	w.own("b", 20, never).copy().reaches(20).close()
	close(wake)
	a.fails(writer.ErrFenced)
	if n := len(w.files()); n != 2 {
		t.Errorf("%d files were uploaded; the zombie's is not one of two, so this tests nothing", n)
	}
	w.exactly()
}

// TestTwoPublishers: two publishers at once name each file once. In the sink of apache/iceberg#17637 a
// rebalance leaves two coordinators.
func TestTwoPublishers(t *testing.T) {
	w := newWorld(t)
	ctx, stop := context.WithCancel(t.Context())
	w.produce(1)
	a := w.own("a", 5, never)
	var g sync.WaitGroup
	for range 2 {
		p, err := publisher(ctx, w.logs, w.table, 1, &delta.Options{Every: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		g.Go(func() {
			if err := p.Run(ctx); ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	a.copy()
	for n := int64(5); n <= 100; n += 5 {
		w.produce(int(n) - w.ledger.n)
		a.reaches(n)
	}
	a.close()
	stop()
	g.Wait()
	table := w.exactly()
	if n := len(table.versions[len(table.versions)-1]); n != len(w.files()) {
		t.Errorf("the table has %d of %d files", n, len(w.files()))
	}
}

// TestIdleTopicIsCommitted: a file is committed when its time has come, also if no message follows. The sink
// of confluentinc/kafka-connect-storage-cloud#144 looks at the time only when one does.
func TestIdleTopicIsCommitted(t *testing.T) {
	w := newWorld(t)
	w.produce(3)
	w.own("a", 1_000_000, 10*time.Millisecond).copy().reaches(3).close()
	w.exactly()
}

// TestRotationByWallClock: owners that cut files at different times, and crash, copy each message once. The
// sink of confluentinc/kafka-connect-storage-cloud#177 gives up exactly-once if the server's time decides.
func TestRotationByWallClock(t *testing.T) {
	w := newWorld(t)
	w.logs.SetHook(faultstore.Script(
		commits(1, faultstore.Fault{Drop: true, Crash: true}), commits(2, faultstore.Fault{Crash: true}), commits(3, faultstore.Fault{Drop: true, Crash: true}),
	))
	for i, flush := range []time.Duration{time.Millisecond, 3 * time.Millisecond, 2 * time.Millisecond} {
		w.produce(30)
		w.own(fmt.Sprint(i), 1_000_000, flush).copy().fails(faultstore.ErrCrashed)
	}
	w.produce(10)
	w.own("by size", 7, never).copy().reaches(90).close()
	w.produce(10)
	w.own("by time", 1_000_000, time.Millisecond).copy().reaches(110).close()
	w.exactly()
}

// TestOwnerCutsElsewhere: an owner dies while it commits its second file, and the next one, whose clock is
// another, cuts longer or shorter files. What was readable after the death stays so, and no message is in two
// files. In the sink of confluentinc/kafka-connect-storage-cloud#341, which asks how rotation by the wall clock
// can break exactly-once, offsets are committed after the files: the next task begins at message 0 again. If
// it cuts after 7 messages where the dead one cut after 5, then 5 and 6 are in two files; if the other way
// round, a file with 5 replaces one with 7, and readers miss two that they have seen. Here the length stands
// for the clock, so that the test knows where files are cut.
func TestOwnerCutsElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		first, second uint64 // how many messages a file has
		dropped       bool   // whether the owner dies before the store gets its second commit, or after
		readable      int
	}{
		"longer, not committed":  {5, 7, true, 5},
		"longer, committed":      {5, 7, false, 10},
		"shorter, not committed": {7, 5, true, 7},
		"shorter, committed":     {7, 5, false, 14},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			dies := commits(1, faultstore.Fault{Drop: c.dropped, Crash: true})
			dies.Skip++ // its first file is committed
			w.logs.SetHook(faultstore.Script(dies))
			w.produce(20)
			w.own("a", c.first, never).copy().fails(faultstore.ErrCrashed)
			if n := len(w.files()); n != 2 {
				t.Fatalf("%d files are uploaded, want 2", n)
			}
			if n := w.published().rows(); n != c.readable {
				t.Fatalf("%d messages are readable after the death, want %d", n, c.readable)
			}
			w.own("b", c.second, 10*time.Millisecond).copy().reaches(20).close()
			w.exactly()
		})
	}
}

// TestAbortedTransaction: messages of a transaction that was aborted are not copied, and the cursor passes
// them. So they are no gap that somebody must look at when Kafka has deleted them.
func TestAbortedTransaction(t *testing.T) {
	w := newWorld(t)
	w.produce(2)
	p := w.kgo(kgo.TransactionalID("x"))
	for _, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryAbort} {
		if err := p.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := p.ProduceSync(t.Context(), message(7), message(8)).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := p.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
	end := w.kafka.PartitionInfo(topic, 0).HighWatermark
	if end != 8 { // two messages, and twice two with the mark of the end
		t.Fatalf("the partition ends at %d", end)
	}
	w.own("a", 1_000_000, time.Millisecond).copy().reaches(end).close()
	if v := w.ledger.compare(w.published().newest); v.err() != nil {
		t.Error(v.err())
	}
	// Only aborted messages follow, and Kafka deletes all.
	versions := len(w.published().versions)
	if err := p.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.ProduceSync(t.Context(), message(9)).FirstErr(), p.EndTransaction(t.Context(), kgo.TryAbort)); err != nil {
		t.Fatal(err)
	}
	w.own("b", 1_000_000, time.Millisecond).copy().reaches(end + 2).close()
	if n := len(w.published().versions); n != versions {
		t.Errorf("a cursor without messages has made a version: %d and %d: %v", versions, n, w.ledger.compare(w.published().newest))
	}
	if err := w.kafka.DeleteRecords(topic, 0, end+2); err != nil {
		t.Fatal(err)
	}
	w.produce(1)
	w.own("c", 1, never).copy().reaches(end + 3).close()
	if v := w.ledger.compare(w.published().newest); v.Lost+v.Doubled > 0 {
		t.Error(v.err())
	}
}

// TestWhatStopsAPartition: when messages are gone or are others, the partition stops with what to do. The
// sinks that use Kafka's own offsets begin at the place that auto.offset.reset says.
func TestWhatStopsAPartition(t *testing.T) {
	for name, c := range map[string]struct {
		before func(w *world) // with ten messages copied
		want   error
		says   string
	}{
		"messages expired": {func(w *world) {
			w.produce(5)
			w.must(w.kafka.DeleteRecords(topic, 0, 12))
		}, errExpired, "the copy has reached offset 10, and the topic has offsets 12 to 14"},
		"all messages expired": {func(w *world) {
			w.produce(5)
			w.must(w.kafka.DeleteRecords(topic, 0, 15))
		}, errExpired, "offset 10"},
		"the topic is another": {func(w *world) {
			w.must(w.kafka.DeleteTopic(topic))
			w.must(w.kafka.CreateTopic(topic, 1, nil))
		}, errRecreated, "the id was"},
		"the topic is shorter": {func(w *world) {
			at, err := decodeCursor(w.own("x", 1, never).w.Recovered().Cursor, 0)
			w.must(err)
			at.Offset += 5
			w.forge(at)
		}, errTruncated, "the copy has reached offset 15, and the topic has offsets 0 to 9"},
		"the end was another": {func(w *world) {
			// The cursor says that epoch 0 had 14 messages. By the broker it has 10, and the
			// others are of a later epoch.
			at, err := decodeCursor(w.own("x", 1, never).w.Recovered().Cursor, 0)
			w.must(err)
			_, _, err = w.kafka.AddNode(1, 0)
			w.must(err)
			w.must(w.kafka.MoveTopicPartition(topic, 0, 1))
			w.produce(10)
			at.Offset = 14
			w.forge(at)
		}, errTruncated, "lost"},
		"another log": {func(w *world) {
			_, err := w.own("x", 1, never).w.Append(w.Context(), nil, writer.Cursor([]byte("line 7")))
			w.must(err)
		}, errCursor, "belongs to something else"},
		"another partition": {func(w *world) {
			w.forge(cursor{Topic: "x", Partition: 3})
		}, errCursor, "in the log of partition 0"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.produce(10)
			w.own("a", 10, never).copy().reaches(10).close()
			c.before(w)
			o := w.own("b", 1, never).copy()
			if err := <-o.ended; !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("it ended with: %v", err)
			}
		})
	}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// forge commits a cursor.
func (w *world) forge(at cursor) {
	w.Helper()
	_, err := w.own("forger", 1, never).w.Append(w.Context(), nil, writer.Cursor(at.encode()))
	w.must(err)
}
