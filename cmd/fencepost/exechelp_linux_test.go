package main

import "github.com/fencepost/fencepost/cmd/fencepost/internal/supervise"

// now is the present moment as workers write it.
func now() float64 { return float64(supervise.Now()) / 1e9 }
