package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/fencepost/fencepost/writer"
)

// cursor is the place in Kafka that the log of a partition has reached. Each commit has one.
type cursor struct {
	// Topic is the id that Kafka gave the topic when it was created. A topic that is deleted and
	// created again has another one.
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	// Offset is that of the next message, and Epoch the leader epoch of the last one, or -1.
	Offset int64 `json:"offset"`
	Epoch  int32 `json:"epoch"`
}

// In these cases messages are gone or are others, so the partition stops. It is never read from another
// place without a word.
var (
	errRecreated = errors.New("kafka-lake: the topic was deleted and created again: copy the new topic to a new place")
	errExpired   = errors.New("kafka-lake: messages were deleted before they were copied: lengthen the topic's retention; to go on without them, copy to a new place")
	errTruncated = errors.New("kafka-lake: Kafka has lost messages that were copied already (unclean leader election?): the table has messages that the topic has not; copy to a new place")
	// errNoPartition: the topic has fewer partitions than the group.
	errNoPartition = errors.New("there is no such partition")
	errCursor      = errors.New("kafka-lake: the cursor of the log is not one of this program: the log belongs to something else")
)

func (c cursor) encode() []byte {
	body, err := json.Marshal(c)
	if err != nil {
		panic(err) // it has only texts and numbers
	}
	return body
}

func decodeCursor(body []byte, partition int32) (c cursor, err error) {
	if err := json.Unmarshal(body, &c); err != nil {
		return c, fmt.Errorf("%w: %q: %w", errCursor, body, err)
	}
	if c.Topic == "" || c.Offset < 0 || c.Partition != partition {
		return c, fmt.Errorf("%w: %s in the log of partition %d", errCursor, body, partition)
	}
	return c, nil
}

// seek returns a client that reads from the cursor that w has recovered. It checks first that the
// messages from there on are those that came after the copied ones.
func (l *lake) seek(ctx context.Context, w *writer.Writer, partition int32) (*kgo.Client, cursor, error) {
	now, first, end, err := l.askUntil(ctx, partition)
	if err != nil {
		return nil, now, err
	}
	at := now
	if recovered := w.Recovered().Cursor; len(recovered) > 0 {
		if at, err = decodeCursor(recovered, partition); err != nil {
			return nil, at, err
		}
		if err := at.fits(now.Topic, first, end); err != nil {
			return nil, at, err
		}
	} else if _, err := w.Append(ctx, nil, writer.Cursor(at.encode())); err != nil {
		// The first owner commits where it begins, before it reads. Without this commit: it dies before
		// its first file; Kafka deletes messages; the next owner begins after them, and
		// nobody notices.
		return nil, at, err
	}
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(l.brokers...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{l.topic: {partition: kgo.NewOffset().At(at.Offset).WithEpoch(at.Epoch)}}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(),          // so that the cursor passes transactions that were aborted
		kgo.KeepRetryableFetchErrors(),    // see lake.trouble
		kgo.FetchMaxPartitionBytes(fetch), // each partition has a client of its own
		kgo.FetchMaxBytes(fetch),
		kgo.WithPools(&memory),
	}, l.client...)...)
	return client, at, err
}

// fits tells whether the topic still has what comes after the cursor.
func (c cursor) fits(topic string, first, end int64) error {
	where := fmt.Sprintf("partition %d: the copy has reached offset %d, and the topic has offsets %d to %d", c.Partition, c.Offset, first, end-1)
	switch {
	case c.Topic != topic:
		return fmt.Errorf("%w: the id was %s and is %s", errRecreated, c.Topic, topic)
	case c.Offset < first:
		return fmt.Errorf("%w: %s", errExpired, where)
	case c.Offset > end:
		return fmt.Errorf("%w: %s", errTruncated, where)
	}
	return nil
}

// askUntil asks Kafka until it answers. Work that fails again and again is parked: its group tries it again
// every five minutes. So the work itself waits for a Kafka that is away.
func (l *lake) askUntil(ctx context.Context, partition int32) (c cursor, first, end int64, err error) {
	for {
		try, cancel := context.WithTimeout(ctx, 30*time.Second)
		c, first, end, err = l.ask(try, partition)
		cancel()
		if err == nil || final(err) {
			return c, first, end, err
		}
		l.wait(partition, err)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return c, first, end, context.Cause(ctx)
		}
	}
}

// ask asks Kafka for the topic's id and for the offsets that a partition has: from first on, up to end.
// The cursor is one for a log that has none.
func (l *lake) ask(ctx context.Context, partition int32) (c cursor, first, end int64, err error) {
	err = l.admin(ctx, func(admin *kadm.Client, topic kadm.TopicDetail) error {
		from, err := admin.ListStartOffsets(ctx, l.topic)
		if err != nil {
			return err
		}
		to, err := admin.ListEndOffsets(ctx, l.topic)
		if err != nil {
			return err
		}
		a, okA := from.Lookup(l.topic, partition)
		b, okB := to.Lookup(l.topic, partition)
		if !okA || !okB {
			return fmt.Errorf("%w: %d", errNoPartition, partition)
		}
		c = cursor{Topic: topic.ID.String(), Partition: partition, Offset: a.Offset, Epoch: -1}
		first, end = a.Offset, b.Offset
		return errors.Join(a.Err, b.Err)
	})
	return c, first, end, err
}

// partitions asks Kafka how many partitions the topic has.
func (l *lake) partitions(ctx context.Context) (n int, err error) {
	err = l.admin(ctx, func(_ *kadm.Client, topic kadm.TopicDetail) error {
		n = len(topic.Partitions)
		return nil
	})
	return n, err
}

// admin calls f with a client for questions.
func (l *lake) admin(ctx context.Context, f func(*kadm.Client, kadm.TopicDetail) error) error {
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(l.brokers...)}, l.client...)...)
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	topics, err := admin.ListTopics(ctx, l.topic)
	if err == nil {
		err = topics[l.topic].Err
	}
	if err == nil {
		err = f(admin, topics[l.topic])
	}
	if err != nil {
		return fmt.Errorf("kafka-lake: asking Kafka for the topic %s: %w", l.topic, err)
	}
	return nil
}
