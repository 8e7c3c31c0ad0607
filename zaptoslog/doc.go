// Package zaptoslog makes a zap logger that writes to a log/slog handler, for programs
// that log with slog. Fencepost's packages take a *zap.Logger:
//
//	opts := &fencepost.Options{Logger: zaptoslog.New(slog.Default().Handler())}
//
// The package go.uber.org/zap/exp/zapslog goes the other way, from slog to zap.
//
// # What a record holds
//
//   - Levels: zap's Debug, Info, Warn and Error become slog's levels of these names.
//     DPanic, Panic and Fatal become 12, 16 and 20, which slog prints as ERROR+4,
//     ERROR+8 and ERROR+12. The handler decides which levels are enabled.
//   - Fields become attributes of the matching kind. Durations and times stay durations
//     and times. Errors stay errors, so a handler can test them with errors.As.
//     Namespaces and objects become groups.
//   - The logger's name becomes the attribute "logger", and a stack trace "stacktrace",
//     outside of all namespaces.
//   - The caller becomes the record's source if the logger has the option
//     zap.AddCaller.
package zaptoslog
