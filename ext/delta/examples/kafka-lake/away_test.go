package main

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/fencepost/fencepost/store/faultstore"
)

// TestKafkaIsAway: an owner that finds no Kafka waits for it, and does not fail: its group would park it.
func TestKafkaIsAway(t *testing.T) {
	w := newWorld(t)
	w.produce(5)
	var away atomic.Int32
	away.Store(2)
	w.kafka.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
		w.kafka.KeepControl()
		return nil, errors.New("away"), away.Load() > 0
	})
	o := w.own("a", 5, never)
	o.lake.client = []kgo.Opt{kgo.RequestRetries(0)}
	o.lake.waits = func(int32, error) { away.Add(-1) }
	o.copy().reaches(5).close()
	if away.Load() > 0 {
		t.Error("Kafka was not asked again")
	}
	w.exactly()
}

// TestTopicIsDeletedWhileItIsCopied: the client notices it, and the next opening says it.
func TestTopicIsDeletedWhileItIsCopied(t *testing.T) {
	w := newWorld(t)
	w.produce(10)
	a := w.own("a", 10, never).copy().reaches(10)
	w.must(w.kafka.DeleteTopic(topic))
	w.must(w.kafka.CreateTopic(topic, 1, nil))
	w.client.PurgeTopicsFromClient(topic)
	w.produce(5)
	if err := <-a.ended; err == nil {
		t.Error("it has copied messages of another topic")
	}
	w.own("b", 1, never).copy().fails(errRecreated)
}

// TestAnotherTopicInTheAnswer: the topic is created again between the question and the first fetch.
func TestAnotherTopicInTheAnswer(t *testing.T) {
	w := newWorld(t)
	w.produce(1)
	o := w.own("a", 1, never)
	client, _, err := o.lake.seek(t.Context(), o.w, 0)
	w.must(err)
	defer client.Close()
	if _, err := o.lake.poll(t.Context(), client, "the topic before", time.Time{}); !errors.Is(err, errRecreated) {
		t.Errorf("poll returned: %v", err)
	}
}

// TestFirstOwnerCommitsWhereItBegins: it dies before its first file, and Kafka deletes what it has read. The
// next owner must notice.
func TestFirstOwnerCommitsWhereItBegins(t *testing.T) {
	w := newWorld(t)
	w.produce(10)
	w.logs.SetHook(faultstore.Script(commits(1, faultstore.Fault{Drop: true, Crash: true})))
	w.own("a", 10, never).copy().fails(faultstore.ErrCrashed)
	w.must(w.kafka.DeleteRecords(topic, 0, 4))
	w.own("b", 10, never).copy().fails(errExpired)
}
