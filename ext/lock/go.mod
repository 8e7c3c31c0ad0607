module github.com/fencepost/fencepost/ext/lock

go 1.26.0

replace github.com/fencepost/fencepost => ../..

require (
	github.com/fencepost/fencepost v0.0.0-00010101000000-000000000000
	github.com/google/uuid v1.6.0
)

require golang.org/x/sys v0.49.0 // indirect
