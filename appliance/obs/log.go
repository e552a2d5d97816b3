package obs

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/go-hclog"
)

// LogConfig says how log lines look and which are written.
type LogConfig struct {
	Format string `toml:"format" reload:"r" oneof:"json text"`                      // "json" or "text"
	Level  string `toml:"level" reload:"r" oneof:"trace debug info warn error off"` // "trace", "debug", "info", "warn", "error" or "off"
}

// DefaultLogConfig is JSON at level info.
func DefaultLogConfig() LogConfig {
	return LogConfig{Format: "json", Level: "info"}
}

// Validate joins all faults.
func (c LogConfig) Validate() error {
	var errs []error
	if c.Format != "json" && c.Format != "text" {
		errs = append(errs, fmt.Errorf("log.format = %q: must be json or text", c.Format))
	}
	if hclog.LevelFromString(c.Level) == hclog.NoLevel {
		errs = append(errs, fmt.Errorf("log.level = %q: must be trace, debug, info, warn, error or off", c.Level))
	}
	return errors.Join(errs...)
}

// NewLogger is the Logger of a Control that nobody turns.
func NewLogger(cfg LogConfig, out io.Writer) hclog.Logger {
	return NewControl(cfg, out).Logger()
}

// Control owns the node's logger: what it writes, and how that is changed while it runs. It is safe for concurrent use.
//
// It writes one line per call to out, in one Write. A logger's name, up to its first dot, is the line's "service"; the message, a
// constant, its "event"; the key-value pairs follow, secrets hidden. Of lines that say the same, 10 a second are written, the others
// summed. A call waits as long as out does: give it a Ring.
type Control struct {
	base hclog.InterceptLogger
	sink *sink

	mu sync.Mutex // serialises the changes
}

// NewControl makes the logger. What is not valid in cfg falls back to the default.
func NewControl(cfg LogConfig, out io.Writer) *Control {
	c := &Control{sink: newSink(out)}
	// The logger below the sink must print nothing, but it keeps the lowest level there is and answers IsDebug.
	c.base = hclog.NewInterceptLogger(&hclog.LoggerOptions{
		Output: io.Discard, Exclude: func(hclog.Level, string, ...any) bool { return true },
	})
	c.base.RegisterSink(c.sink)
	c.Set(cfg)
	if ring, ok := out.(*Ring); ok {
		ring.sums(c.sink.sweep)
	}
	return c
}

// Logger is the node's logger; services take a named one of it.
func (c *Control) Logger() hclog.Logger {
	return c.base
}

// Set puts cfg in force for all services, those whose level was set by hand included.
func (c *Control) Set(cfg LogConfig) {
	c.mu.Lock()
	defer c.mu.Unlock()
	level := hclog.LevelFromString(cfg.Level)
	if level == hclog.NoLevel {
		level = hclog.Info
	}
	render := appendJSONLine
	if cfg.Format == "text" {
		render = appendTextLine
	}
	c.sink.render.Store(&render)
	c.apply(levels{all: level})
}

var errNoLevel = errors.New("must be trace, debug, info, warn, error or off")

// SetLevel sets the level of one service until the next Set, or for "" that of all without one of their own.
func (c *Control) SetLevel(level, service string) error {
	l := hclog.LevelFromString(level)
	if l == hclog.NoLevel {
		return errNoLevel
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	next := c.sink.levels.Load().clone()
	if service == "" {
		next.all = l
	} else {
		next.by[service] = l
	}
	c.apply(next)
	return nil
}

// Level is the level that holds for a service, or for those without one of their own.
func (c *Control) Level(service string) string {
	return c.sink.levels.Load().of(service).String()
}

// apply wants c.mu held.
func (c *Control) apply(l levels) {
	c.sink.levels.Store(&l)
	c.base.SetLevel(l.least())
}
