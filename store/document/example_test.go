package document_test

import (
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store/document"
)

func Example() {
	type place struct {
		Format   int      `json:"format"`
		Requires []string `json:"requires,omitempty"`
		Shelf    string   `json:"shelf"`
	}
	const key = "places/7.json"
	body, err := document.Encode(key, place{Format: document.Format, Shelf: "b"})
	if err != nil {
		fmt.Println(err)
	}
	fmt.Printf("%s", body)

	var p place
	err = document.Decode(key, body, &p)
	fmt.Println(p.Shelf, err)

	body[20] ^= 1 // a disk flips a bit
	err = document.Decode(key, body, &p)
	fmt.Println(errors.Is(err, fence.ErrCorrupt))
	// Output:
	// {
	//  "format": 1,
	//  "shelf": "b",
	//  "checksum": "83f6cd17"
	// }
	// b <nil>
	// true
}
