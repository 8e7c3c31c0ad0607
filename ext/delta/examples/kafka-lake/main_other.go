//go:build !unix

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "kafka-lake: this example freezes processes with SIGSTOP and needs a Unix system")
	os.Exit(1)
}
