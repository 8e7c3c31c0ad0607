// Command small-files shows how small Parquet files of a table become larger ones. It leads a
// log, commits many files of 100 rows each, and merges them meanwhile. A reader looks on and
// adds up: at each moment each row that was committed is there once.
//
//	go run .
//	go run . -store 's3://bucket/prefix?endpoint=http://127.0.0.1:9000' -files 500
//
// The function that merges Parquet files is in merge.go. It is all that an application needs
// besides package rewrite.
package main
