// Command group shows with real processes how workers share partitions. Five workers share 64 partitions, and
// append to a log for each. One is killed, one is frozen, one is stopped in good order, and two more
// join. Each time the partitions move to those that are there.
//
//	go run ./examples/group
//	go run ./examples/group -store 's3://bucket/prefix?endpoint=http://127.0.0.1:9000'
//
// At the end it checks that no two workers held a partition at once, by their own belief; that
// the tokens of each partition rise; and that each log is one history with every acknowledged record. It prints how
// long partitions had no owner. It exits with a status other than 0 if any promise is broken. It needs a Unix
// system, because it freezes processes with SIGSTOP.
package main
