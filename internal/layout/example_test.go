package layout_test

import (
	"fmt"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
)

func ExampleParseDataKey() {
	p := fence.Position{Epoch: 3, Seq: 17}
	fmt.Println(layout.DataKey(p))
	fmt.Println(layout.ParseDataKey(layout.DataKey(p)))
	fmt.Println(layout.ParseDataKey("data/3/17"))
	// Output:
	// data/00000000000000000003/00000000000000000017
	// 3/17 true
	// 0/0 false
}
