package probe_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/store/probe"
)

func Example() {
	report, err := probe.Run(context.Background(), memstore.New(nil), nil)
	if errors.Is(err, probe.ErrRefused) {
		fmt.Println("this store would lose data:", err)
		return
	}
	fmt.Println(err, len(report.Kept), "promises kept")
	// Output: <nil> 12 promises kept
}
