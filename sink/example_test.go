package sink_test

import (
	"log/slog"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/sink"
)

// A program that logs with slog gives Fencepost's packages its own handler.
func ExampleFromSlog() {
	handler := slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{} // the example's output is always the same
			}
			return a
		},
	})
	logger := sink.FromSlog(handler) // fencepost.Options{Logger: logger}
	logger.Named("leader").Info("elected", zap.Uint64("epoch", 7), zap.Duration("took", 1500*time.Millisecond))
	// Output:
	// level=INFO msg=elected logger=leader epoch=7 took=1.5s
}
