module github.com/fencepost/fencepost/ext/gocronlock

go 1.26.0

replace (
	github.com/fencepost/fencepost => ../..
	github.com/fencepost/fencepost/ext/lock => ../lock
)

require (
	github.com/fencepost/fencepost v0.0.0-00010101000000-000000000000
	github.com/fencepost/fencepost/ext/lock v0.0.0-00010101000000-000000000000
	github.com/go-co-op/gocron/v2 v2.21.2
)

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/jonboulle/clockwork v0.5.0 // indirect
	github.com/robfig/cron/v3 v3.0.1 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
