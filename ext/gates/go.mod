module github.com/fencepost/fencepost/ext/gates

go 1.26.0

replace github.com/fencepost/fencepost => ../..

require github.com/fencepost/fencepost v0.0.0-00010101000000-000000000000
