package main

import "github.com/fencepost/fencepost/bench/result"

// Row is a line of a table.
type Row = result.Row

// report is a page to which the measures add rows.
type report struct {
	*result.Page
	by string // the running measure
}

func (r *report) add(rows ...Row) { r.Add(r.by, rows...) }

// writerReport returns an empty page for the command's own measures.
func writerReport() *report {
	return &report{result.New("The writer beside what it stands on", "writer"), ""}
}
