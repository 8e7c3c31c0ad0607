package main

import "github.com/fencepost/fencepost/bench/result"

// Row is a line of a table.
type Row = result.Row

// report is a page that measures add to, one after the other.
type report struct {
	*result.Page
	by string // the measure whose turn it is
}

func (r *report) add(rows ...Row) { r.Add(r.by, rows...) }

// writerReport is what the command itself measures.
func writerReport() *report {
	return &report{result.New("The writer beside what it stands on", "writer", "bench"), ""}
}

// What the measures call often.
var (
	quantile = result.Quantile
	number   = result.Number
)
