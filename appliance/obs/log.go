package obs

import (
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/go-hclog"
)

// LogConfig says how log lines look and which are written.
type LogConfig struct {
	Format string `toml:"format"` // "json" or "text"
	Level  string `toml:"level"`  // "trace", "debug", "info", "warn", "error" or "off"
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

// NewLogger writes one line per call to out, in one Write. A logger's name, up to its first dot, is the line's "service"; the message,
// a constant, its "event"; the key-value pairs follow, secrets hidden. SetLevel works at run time and for all sub-loggers at once. What
// is not valid in cfg falls back to the default. A call waits as long as out does: give it a Ring.
func NewLogger(cfg LogConfig, out io.Writer) hclog.Logger {
	level := hclog.LevelFromString(cfg.Level)
	if level == hclog.NoLevel {
		level = hclog.Info
	}
	// The logger below the sink must print nothing, but it keeps the level and answers IsDebug.
	logger := hclog.NewInterceptLogger(&hclog.LoggerOptions{
		Level: level, Output: io.Discard, Exclude: func(hclog.Level, string, ...any) bool { return true },
	})
	render := appendJSONLine
	if cfg.Format == "text" {
		render = appendTextLine
	}
	logger.RegisterSink(&sink{out: out, level: logger.GetLevel, render: render})
	return logger
}
