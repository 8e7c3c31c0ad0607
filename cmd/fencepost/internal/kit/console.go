package kit

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/term"
)

// Console writes to standard error, which in the program is [notes]: lines for people, and a progress bar below them on a
// terminal. It is safe for concurrent use.
type Console struct {
	w    io.Writer
	Bars bool

	// pause is the time between two lines that replace a bar where there are no bars.
	pause time.Duration

	mu    sync.Mutex
	bar   *progressbar.ProgressBar
	now   string        // what the bar shows
	since time.Time     // the last line that replaced a bar, or the first call of due; zero: neither
	wait  time.Duration // until the next such line
	told  bool          // there was such a line
}

// NewConsole returns a console on w.
func NewConsole(w io.Writer, bars bool, pause time.Duration) *Console {
	return &Console{w: w, Bars: bars, pause: pause}
}

// Note prints a line.
func (c *Console) Note(format string, args ...any) {
	fmt.Fprintln(c, safe(fmt.Sprintf(format, args...)))
}

// Progress shows how much is done. A total of 0 is unknown. Without a terminal it prints
// lines, the first one after a while, and then less and less often: a command that runs for
// weeks does not fill a log with them.
func (c *Console) Progress(what string, done, total int64, bytes bool) {
	if !c.Bars {
		if c.Due() {
			c.Note("%s: %s", what, portion(done, total, bytes))
		}
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bar == nil || c.now != what {
		c.end()
		c.now = what
		most := total
		if most <= 0 {
			most = -1
		}
		columns := c.columns()
		c.bar = progressbar.NewOptions64(most,
			progressbar.OptionSetWriter(c.w), progressbar.OptionSetDescription(what), progressbar.OptionShowBytes(bytes),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(), progressbar.OptionSetWidth(min(max(columns-70, 1), 20)),
			progressbar.OptionSetPredictTime(total > 0 && columns >= 80), progressbar.OptionShowCount(),
			// Without this a goroutine of the bar goes on drawing it, also after its end.
			progressbar.OptionSetSpinnerChangeInterval(0))
	} else if total > 0 && c.bar.GetMax64() != total {
		c.bar.ChangeMax64(total)
	}
	if total > 0 {
		done = min(done, total)
	}
	_ = c.bar.Set64(done)
}

// columns is the width of the terminal. The library finds that out only of a file.
func (c *Console) columns() int {
	if fd, ok := terminalOf(c.w); ok {
		if width, _, err := term.GetSize(fd); err == nil && width > 0 {
			return width
		}
	}
	return 90
}

func terminalOf(out io.Writer) (fd int, ok bool) {
	f, ok := out.(interface{ Fd() uintptr })
	if !ok {
		return 0, false
	}
	return int(f.Fd()), term.IsTerminal(int(f.Fd()))
}

// portion says how much is done.
func portion(done, total int64, bytes bool) string {
	amount := func(n int64) string {
		if bytes {
			return Size(n)
		}
		return fmt.Sprint(n)
	}
	if total <= 0 {
		return amount(done) + " so far"
	}
	return fmt.Sprintf("%s of %s, %d %%", amount(done), amount(total), min(done*100/total, 100))
}

// Due tells whether it is time for a line about work that goes on, where there are no
// bars. Work that is soon done needs none.
func (c *Console) Due() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	switch {
	case c.Bars:
		return false
	case c.since.IsZero():
		c.since, c.wait = now, c.pause
	}
	if now.Sub(c.since) < c.wait {
		return false
	}
	c.since, c.wait, c.told = now, min(2*c.wait, max(c.pause, 10*time.Minute)), true
	return true
}

// Done removes the bar, and tells whether lines replaced it.
func (c *Console) Done() (told bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end()
	told = c.told
	c.since, c.told = time.Time{}, false
	return told
}

func (c *Console) end() {
	if c.bar != nil {
		_ = c.bar.Clear()
		_ = c.bar.Exit()
		c.bar, c.now = nil, ""
	}
}

// Write writes whole lines, in place of the bar.
func (c *Console) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bar != nil {
		_ = c.bar.Clear()
	}
	return c.w.Write(b)
}

// Logger logs to the console from a level on. That a store does not answer the vigil says already. What there is only
// without warnings from others looks like the lines of the verb.
func (c *Console) Logger(level zapcore.Level) *zap.Logger {
	cfg := zap.NewDevelopmentEncoderConfig()
	cfg.EncodeTime, cfg.ConsoleSeparator = zapcore.TimeEncoderOfLayout("15:04:05.000"), " "
	if level > zap.InfoLevel {
		cfg = zapcore.EncoderConfig{MessageKey: cfg.MessageKey, EncodeDuration: cfg.EncodeDuration, EncodeTime: cfg.EncodeTime, ConsoleSeparator: cfg.ConsoleSeparator}
	}
	return zap.New(untold{zapcore.NewCore(zapcore.NewConsoleEncoder(cfg), zapcore.AddSync(harmless{c}), level)})
}

// harmless escapes what would steer a terminal.
type harmless struct{ *Console }

func (h harmless) Write(b []byte) (int, error) {
	_, err := h.Console.Write([]byte(safe(string(b))))
	return len(b), err
}

// untold leaves out the lines about a store that does not answer.
type untold struct{ zapcore.Core }

func (u untold) With(fields []zapcore.Field) zapcore.Core { return untold{u.Core.With(fields)} }

func (u untold) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if strings.HasPrefix(e.Message, "the store ") || e.Message == "waiting for the store" {
		return to
	}
	return u.Core.Check(e, to)
}
