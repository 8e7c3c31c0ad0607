module github.com/fencepost/fencepost/ext/tuslock

go 1.26.0

replace (
	github.com/fencepost/fencepost => ../..
	github.com/fencepost/fencepost/ext/lock => ../lock
)

require (
	github.com/fencepost/fencepost v0.0.0-00010101000000-000000000000
	github.com/fencepost/fencepost/ext/lock v0.0.0-00010101000000-000000000000
)

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/tus/tusd/v2 v2.9.1
	golang.org/x/exp v0.0.0-20250106191152-7588d65b2ba8 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
