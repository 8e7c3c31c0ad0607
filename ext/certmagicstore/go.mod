module github.com/fencepost/fencepost/ext/certmagicstore

go 1.26.0

replace (
	github.com/fencepost/fencepost => ../..
	github.com/fencepost/fencepost/ext/lock => ../lock
)

require (
	github.com/caddyserver/certmagic v0.25.6
	github.com/fencepost/fencepost v0.0.0-00010101000000-000000000000
	github.com/fencepost/fencepost/ext/lock v0.0.0-00010101000000-000000000000
)

require (
	github.com/caddyserver/zerossl v0.1.6 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/klauspost/cpuid/v2 v2.4.0 // indirect
	github.com/libdns/libdns v1.1.1 // indirect
	github.com/mholt/acmez/v3 v3.1.7 // indirect
	github.com/miekg/dns v1.1.73 // indirect
	github.com/zeebo/blake3 v0.2.4 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	go.uber.org/zap v1.28.0 // indirect
	go.uber.org/zap/exp v0.3.0 // indirect
	golang.org/x/crypto v0.57.0 // indirect
	golang.org/x/net v0.59.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.42.0 // indirect
)
