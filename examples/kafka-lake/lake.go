package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/fencepost/fencepost/delta"
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
	// rows is how many messages a file has at most, about.
	flush time.Duration
	rows  uint64
	// client are more options of the Kafka client, such as TLS.
	client []kgo.Opt
	// committed is told each commit, unless it is nil.
	committed func(at cursor, rows uint64)
	// waits is told why Kafka does not answer, unless it is nil.
	waits func(partition int32, err error)
}

// batch is how many messages are taken from the client at once.
const batch = 4096

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
	rows, err := delta.NewWriter(ctx, w, &delta.WriterOptions[row]{Table: l.table})
	if err != nil {
		return err
	}
	defer rows.Close()
	var due time.Time // of the next commit; zero while there is nothing to commit
	for {
		messages, err := l.poll(ctx, from, at.Topic, due)
		if err != nil {
			return err
		}
		if len(messages) > 0 && due.IsZero() {
			due = time.Now().Add(l.flush)
		}
		if err := write(ctx, rows, messages, &at); err != nil {
			return err
		}
		n := rows.Pending()
		if due.IsZero() || n < l.rows && time.Now().Before(due) {
			continue
		}
		// Files and cursor are one atom. Without rows, after a transaction that was aborted, it
		// is the cursor alone.
		if err := rows.Commit(ctx, writer.Cursor(at.encode())); err != nil {
			return err
		}
		if due = (time.Time{}); l.committed != nil {
			l.committed(at, n)
		}
	}
}

// write writes messages, and moves the cursor past them.
func write(ctx context.Context, to *delta.Writer[row], messages []*kgo.Record, at *cursor) error {
	rows := make([]row, 0, len(messages))
	for _, m := range messages {
		if m.Offset < at.Offset {
			return fmt.Errorf("kafka-lake: the client returned offset %d of partition %d after offset %d", m.Offset, m.Partition, at.Offset-1)
		}
		at.Offset, at.Epoch = m.Offset+1, m.LeaderEpoch
		if !m.Attrs.IsControl() { // the end of a transaction moves the cursor, and is no message
			rows = append(rows, rowOf(m))
		}
	}
	return to.Write(ctx, rows)
}

// poll waits for messages, but not longer than until due, unless that is zero.
func (l *lake) poll(ctx context.Context, from *kgo.Client, topic string, due time.Time) ([]*kgo.Record, error) {
	wait, cancel := ctx, func() {}
	if !due.IsZero() {
		wait, cancel = context.WithDeadline(ctx, due)
	}
	defer cancel()
	got := from.PollRecords(wait, batch)
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
	return got.Records(), errors.Join(faults...)
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
