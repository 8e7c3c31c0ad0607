// Package ends tells whoever owns a writer that the writer has ended. Without it a process with
// thousands of writers would have a goroutine for each that waits for its Done.
package ends

import "context"

type key struct{}

// With returns a context for a writer's Options.Until. When the writer takes no appends any
// more, for whatever reason, it calls f once with that reason, which is its Err. It calls f in a goroutine of its
// own, for which its Close waits. So f must return soon, and must not wait for the writer.
func With(ctx context.Context, f func(error)) context.Context {
	return context.WithValue(ctx, key{}, f)
}

// Of returns the function that ctx was given, or nil.
func Of(ctx context.Context) func(error) {
	f, _ := ctx.Value(key{}).(func(error))
	return f
}
