package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

// row is a row of the table: a message as it is. To have columns of your own, change row and rowOf.
type row struct {
	Partition int32     `parquet:"kafka_partition"`
	Offset    int64     `parquet:"kafka_offset"`
	Time      time.Time `parquet:"kafka_time,timestamp(microsecond)"`
	Key       []byte    `parquet:"key,optional"`
	Value     []byte    `parquet:"value,optional"`
}

func rowOf(m *kgo.Record) row {
	return row{Partition: m.Partition, Offset: m.Offset, Time: m.Timestamp, Key: m.Key, Value: m.Value}
}

// lake copies partitions of a topic. The log of each partition has the files, and the cursor.
type lake struct {
	brokers []string
	topic   string
	table   store.Store // the root of the Delta table
	// flush is how long after its first message a file is committed, also if no message follows.
	// rows is how many messages a file has at most.
	flush time.Duration
	rows  uint64
	// client are more options of the Kafka client, such as TLS.
	client []kgo.Opt
	// committed is told each commit, unless it is nil.
	committed func(at cursor, rows uint64)
	// waits is told why Kafka does not answer, unless it is nil.
	waits func(partition int32, err error)
}

const (
	// batch is how many messages are written at once. So few are in the processor's cache until they are written.
	batch = 1024
	// fetch is how many bytes Kafka returns at once, about: a larger batch comes as a whole. This is the default of
	// Kafka's own client.
	fetch = 1 << 20
)

// copyPartition copies a partition of the topic until ctx ends. It begins at the cursor that w has recovered.
//
// The offsets that Kafka stores for consumer groups are not used. The cursor is in the same commit as the
// files, so the two cannot differ. When a file is complete does not matter: size, time, or whatever
// suits. A later owner begins after the last file that was committed, and cuts its own files.
func (l *lake) copyPartition(ctx context.Context, w *writer.Writer, partition int32) error {
	from, at, err := l.seek(ctx, w, partition)
	if err != nil {
		return err
	}
	defer from.Close()
	table, err := delta.NewWriter(ctx, w, &delta.WriterOptions[row]{Table: l.table})
	if err != nil {
		return err
	}
	defer table.Close()
	c := &copying{lake: l, table: table, at: at, rows: make([]row, 0, batch)}
	for {
		messages, err := l.poll(ctx, from, at.Topic, c.due)
		if err != nil {
			return err
		}
		if err := c.write(ctx, messages); err != nil {
			return err
		}
		if !c.due.IsZero() && !time.Now().Before(c.due) {
			if err := c.commit(ctx); err != nil {
				return err
			}
		}
	}
}

// copying is a partition that is being copied.
type copying struct {
	*lake
	table *delta.Writer[row]
	at    cursor
	due   time.Time // of the next commit; zero while there is nothing to commit
	rows  []row     // used again and again
}

// write writes messages, and moves the cursor past them. It commits each file that is full.
func (c *copying) write(ctx context.Context, messages []*kgo.Record) error {
	for len(messages) > 0 {
		if c.due.IsZero() {
			c.due = time.Now().Add(c.flush)
		}
		n := min(batch, len(messages), int(max(1, c.lake.rows-c.table.Pending())))
		if err := c.some(ctx, messages[:n]); err != nil {
			return err
		}
		messages = messages[n:]
		if c.table.Pending() >= c.lake.rows {
			if err := c.commit(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// some writes at most batch messages.
func (c *copying) some(ctx context.Context, messages []*kgo.Record) error {
	c.rows = c.rows[:0]
	for _, m := range messages {
		if m.Offset < c.at.Offset {
			return fmt.Errorf("kafka-lake: the client returned offset %d of partition %d after offset %d", m.Offset, m.Partition, c.at.Offset-1)
		}
		c.at.Offset, c.at.Epoch = m.Offset+1, m.LeaderEpoch
		if !m.Attrs.IsControl() { // the end of a transaction moves the cursor, and is no message
			c.rows = append(c.rows, rowOf(m))
		}
	}
	if err := c.table.Write(ctx, c.rows); err != nil {
		return err
	}
	for _, m := range messages {
		m.Recycle() // the table has copied it
	}
	return nil
}

// commit commits files and cursor as one atom. Without rows, after a transaction that was aborted, it
// is the cursor alone.
func (c *copying) commit(ctx context.Context) error {
	n := c.table.Pending()
	if err := c.table.Commit(ctx, writer.Cursor(c.at.encode())); err != nil {
		return err
	}
	if c.due = (time.Time{}); c.committed != nil {
		c.committed(c.at, n)
	}
	return nil
}

// poll waits for messages, but not longer than until due, unless that is zero. It returns all that the client
// has fetched, so that the client fetches more while these are written.
func (l *lake) poll(ctx context.Context, from *kgo.Client, topic string, due time.Time) ([]*kgo.Record, error) {
	wait, cancel := ctx, func() {}
	if !due.IsZero() {
		wait, cancel = context.WithDeadline(ctx, due)
	}
	defer cancel()
	got := from.PollFetches(wait)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var faults []error
	got.EachError(func(_ string, partition int32, err error) {
		faults = append(faults, l.trouble(partition, err))
	})
	got.EachTopic(func(t kgo.FetchTopic) {
		if id := kadm.TopicID(t.TopicID); id != (kadm.TopicID{}) && id.String() != topic {
			faults = append(faults, fmt.Errorf("%w: the id was %s and is %s", errRecreated, topic, id))
		}
	})
	var all []*kgo.Record
	got.EachPartition(func(p kgo.FetchTopicPartition) {
		if all == nil { // there is one, mostly, so nothing is copied
			all = p.Records
		} else {
			all = append(all, p.Records...)
		}
	})
	return all, errors.Join(faults...)
}

// trouble returns an error if one of the client means that messages are gone. The client itself repeats
// what failed for other reasons.
func (l *lake) trouble(partition int32, err error) error {
	var loss *kgo.ErrDataLoss
	switch {
	case errors.As(err, &loss):
		return fmt.Errorf("%w: partition %d: %w", errTruncated, partition, err)
	case errors.Is(err, kerr.OffsetOutOfRange):
		return fmt.Errorf("%w: partition %d: %w", errExpired, partition, err)
	case errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.InconsistentTopicID):
		// A broker that does not know the topic yet, or a topic that was created again. The
		// work is called again, and seek finds out.
		return fmt.Errorf("kafka-lake: partition %d of %s: %w", partition, l.topic, err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return nil // the time has come for a commit
	case final(err):
		return fmt.Errorf("kafka-lake: reading partition %d of %s: %w", partition, l.topic, err)
	}
	l.wait(partition, err)
	return nil
}

// final tells whether Kafka has answered with an error that does not pass.
func final(err error) bool {
	var answer *kerr.Error
	return errors.As(err, &answer) && !answer.Retriable || errors.Is(err, errNoPartition) || errors.Is(err, kgo.ErrClientClosed)
}

// wait says why a partition waits for Kafka.
func (l *lake) wait(partition int32, err error) {
	if l.waits != nil {
		l.waits(partition, err)
	}
}
