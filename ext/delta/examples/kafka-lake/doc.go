// Command kafka-lake copies a Kafka topic into a Delta Lake table, each message exactly once. It tells a
// story with real processes, and checks the table at the end.
//
//	go run .
//	go run . -brokers 127.0.0.1:9092 -store 's3://bucket/prefix?endpoint=http://127.0.0.1:9000'
//
// Workers share the topic's partitions as a group. The owner of a partition reads Kafka, writes
// Parquet files, and commits each file with Kafka's offset in one atom. One worker is killed between the
// upload of a file and its commit. One is frozen there, and wakes up as a zombie. One more joins.
// All of them publish the table.
//
// At the end the command reads the table with a reader that knows only Delta Lake, and compares it with what
// was produced. It exits with a status other than 0 if a message is lost, doubled or changed.
//
// Without flags Kafka runs in this process (package kfake of franz-go), and the store is a temporary
// directory. It needs a Unix system, because it freezes processes with SIGSTOP.
//
// The part to copy is in lake.go and cursor.go. With -worker the command runs one worker and nothing else.
package main
