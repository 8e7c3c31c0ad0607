package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

func split(brokers string) []string { return strings.Split(brokers, ",") }

// embedded runs a Kafka in this process, on loopback.
func embedded() (brokers string, stop func(), err error) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		return "", nil, err
	}
	return strings.Join(c.ListenAddrs(), ","), c.Close, nil
}

// createTopic creates a topic.
func createTopic(ctx context.Context, brokers, topic string, partitions int) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(split(brokers)...))
	if err != nil {
		return err
	}
	defer client.Close()
	r, err := kadm.NewClient(client).CreateTopic(ctx, int32(partitions), -1, nil, topic)
	if err == nil {
		err = r.Err
	}
	if err != nil {
		return fmt.Errorf("kafka-lake: creating the topic %s: %w", topic, err)
	}
	return nil
}

// deleteTopic deletes it.
func deleteTopic(ctx context.Context, brokers, topic string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(split(brokers)...))
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = kadm.NewClient(client).DeleteTopic(ctx, topic)
	return err
}

// produce produces so many messages a second until ctx ends, and notes in the ledger what Kafka
// acknowledges. It returns when the outcome of each message is known.
func produce(ctx context.Context, brokers, topic string, rate int, l *ledger) error {
	// The client is idempotent by default: it repeats a request, and the broker stores it once.
	client, err := kgo.NewClient(kgo.SeedBrokers(split(brokers)...), kgo.DefaultProduceTopic(topic))
	if err != nil {
		return err
	}
	defer client.Close()
	const tick = 10 * time.Millisecond
	due := time.NewTicker(tick)
	defer due.Stop()
	sent, begun := 0, time.Now()
	for {
		for want := int(time.Since(begun).Seconds() * float64(rate)); sent < want; sent++ {
			l.settled.Add(1)
			// All messages are settled, also when the story ends.
			client.Produce(context.WithoutCancel(ctx), message(sent), l.add)
		}
		select {
		case <-due.C:
		case <-ctx.Done():
			l.settled.Wait()
			return nil
		}
	}
}

// message is an order of about 100 bytes of JSON.
func message(n int) *kgo.Record {
	return &kgo.Record{
		Key:   fmt.Appendf(nil, "customer-%d", n%997),
		Value: fmt.Appendf(nil, `{"order":%d,"customer":%d,"item":"item number %d","price":%d.%02d,"currency":"EUR"}`, n, n%997, n*7919%10007, n%500, n%100),
	}
}
