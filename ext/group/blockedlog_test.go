package group_test

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/sink"
	"github.com/fencepost/fencepost/store/faultstore"
)

// blocked is where a log goes that blocks until it is closed.
type blocked chan struct{}

func (b blocked) Write(p []byte) (int, error) {
	<-b
	return len(p), nil
}

// Workers of a group whose logs cannot be written share the partitions, lose them and leave.
func TestRunGroupWithABlockedLog(t *testing.T) {
	for name, logger := range map[string]func(w io.Writer) *zap.Logger{
		"zap": func(w io.Writer) *zap.Logger {
			return zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zapcore.EncoderConfig{MessageKey: "m"}), zapcore.AddSync(w), zap.DebugLevel))
		},
		"slog": func(w io.Writer) *zap.Logger { return sink.FromSlog(slog.NewJSONHandler(w, nil)) },
	} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, 4, func(f *fleet) {
				b := make(blocked)
				defer close(b)
				f.change = func(o *group.RunOptions) { o.Logger = logger(b) }
				one, two := f.join("one"), f.join("two")
				time.Sleep(5 * time.Minute)
				f.faulty.SetHook(func(op faultstore.Op) (f faultstore.Fault) {
					if op.Client == "one" {
						f = faultstore.Fault{Drop: true, Err: faultstore.ErrUnavailable}
					}
					return f
				})
				time.Sleep(5 * time.Minute)
				f.mu.Lock()
				for p, who := range f.who {
					if who != "two" {
						t.Errorf("partition %d is still written by %q", p, who)
					}
				}
				f.mu.Unlock()
				f.stop(two)
				f.stop(one)
				f.sound()
			})
		})
	}
}
