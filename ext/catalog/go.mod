module github.com/fencepost/fencepost/ext/catalog

go 1.26.0

replace (
	github.com/fencepost/fencepost => ../..
	github.com/fencepost/fencepost/ext/agent => ../agent
)

require (
	github.com/fencepost/fencepost v0.0.0-00010101000000-000000000000
	github.com/fencepost/fencepost/ext/agent v0.0.0-00010101000000-000000000000
	go.uber.org/zap v1.28.0
	golang.org/x/sync v0.24.0
)

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/klauspost/compress v1.20.3 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
