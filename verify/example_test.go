package verify_test

import (
	"context"
	"fmt"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/verify"
	"github.com/fencepost/fencepost/writer"
)

func Example() {
	ctx := context.Background()
	st := memstore.New(nil)
	w, err := writer.Open(ctx, st, fence.NewToken(1), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, word := range []string{"a", "b", "c"} {
		if _, err := w.Append(ctx, [][]byte{[]byte(word)}); err != nil {
			fmt.Println(err)
			return
		}
	}
	if err := w.Close(ctx); err != nil {
		fmt.Println(err)
		return
	}

	// Somebody tidies up.
	_ = st.Delete(ctx, layout.DataKey(fence.Position{Epoch: 1, Seq: 2}))

	report, err := verify.Run(ctx, st, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range report.Problems {
		fmt.Println(p.Key)
	}
	// Output: data/00000000000000000001/00000000000000000002
}
