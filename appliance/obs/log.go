package obs

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"ronbox/appliance/unit"
)

// LogConfig configures the format and the level of the log.
type LogConfig struct {
	// "json", "text", or "auto": text on a terminal, JSON elsewhere
	Format string `toml:"format" reload:"r" oneof:"auto json text"`
	// "trace", "debug", "info", "warn", "error" or "off"
	Level string `toml:"level" reload:"r" oneof:"trace debug info warn error off"`
}

// DefaultLogConfig returns the format auto at level info.
func DefaultLogConfig() LogConfig {
	return LogConfig{Format: "auto", Level: "info"}
}

// Validate joins all errors.
func (c LogConfig) Validate() error {
	var errs []error
	if c.Format != "auto" && c.Format != "json" && c.Format != "text" {
		errs = append(errs, fmt.Errorf("log.format = %q: must be auto, json or text", c.Format))
	}
	if hclog.LevelFromString(c.Level) == hclog.NoLevel {
		errs = append(errs, fmt.Errorf("log.level = %q: must be trace, debug, info, warn, error or off", c.Level))
	}
	return errors.Join(errs...)
}

// Control owns the node's logger and changes its configuration while it runs. It is safe for
// concurrent use.
//
// Each log call writes one line to out, in one Write. The name of the logger, up to its first dot,
// is the field "service"; the message, a constant, is the field "event"; the key-value pairs
// follow, with secrets hidden. Of equal lines, 10 a second are written and the others are counted.
// A call waits for out, so out should be a Ring.
type Control struct {
	base     hclog.InterceptLogger
	sink     *sink
	terminal bool // the lines are written to one

	mu sync.Mutex // a leaf: it serializes changes
}

// NewControl returns a Control that writes to out. Invalid values in cfg are replaced by the
// default.
func NewControl(cfg LogConfig, out io.Writer) *Control {
	c := &Control{sink: newSink(out), terminal: onTerminal(out)}
	// The logger below the sink must not print, but it has the lowest level so that it answers
	// IsDebug.
	c.base = hclog.NewInterceptLogger(&hclog.LoggerOptions{
		Output: io.Discard, Exclude: func(hclog.Level, string, ...any) bool { return true },
	})
	c.base.RegisterSink(c.sink)
	c.Set(cfg)
	if ring, ok := out.(*Ring); ok {
		ring.setSweep(c.sink.sweep)
	}
	return c
}

// onTerminal reports whether what is written to out, or to the output of a Ring, is shown on a
// terminal.
func onTerminal(out io.Writer) (shown bool) {
	if ring, ok := out.(*Ring); ok {
		out = ring.out
	}
	f, ok := out.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) { // a closed file is no terminal
		_, err := unix.IoctlGetTermios(int(fd), unix.TCGETS)
		shown = err == nil
	})
	return shown
}

// Logger returns the node's logger. Each service uses a named sub-logger.
func (c *Control) Logger() hclog.Logger {
	return c.base
}

// Set applies cfg to all services, including those whose level was set by SetLevel.
func (c *Control) Set(cfg LogConfig) {
	c.mu.Lock()
	defer c.mu.Unlock()
	level := hclog.LevelFromString(cfg.Level)
	if level == hclog.NoLevel {
		level = hclog.Info
	}
	render := appendJSONLine
	if cfg.Format == "text" || cfg.Format == "auto" && c.terminal {
		render = appendTextLine
	}
	c.sink.render.Store(&render)
	c.apply(levels{all: level})
}

var errNoLevel = errors.New("must be trace, debug, info, warn, error or off")

// SetLevel sets the level of one service until the next Set. For service "" it sets the level of
// all services without a level of their own.
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

// Level returns the level of a service; for "" that of services without a level of their own.
func (c *Control) Level(service string) string {
	return c.sink.levels.Load().of(service).String()
}

// apply publishes l. Called with c.mu held.
func (c *Control) apply(l levels) {
	c.sink.levels.Store(&l)
	c.base.SetLevel(l.least())
}

// levels are the levels of the services. They are replaced, never modified.
type levels struct {
	all hclog.Level
	by  map[string]hclog.Level
}

// of returns the level of service.
func (l *levels) of(service string) hclog.Level {
	if own, ok := l.by[service]; ok {
		return own
	}
	return l.all
}

// least returns the lowest level of all.
func (l *levels) least() hclog.Level {
	out := l.all
	for _, own := range l.by {
		out = min(out, own)
	}
	return out
}

func (l *levels) clone() levels {
	by := maps.Clone(l.by)
	if by == nil {
		by = map[string]hclog.Level{}
	}
	return levels{all: l.all, by: by}
}

// line is a parsed log call.
type line struct {
	at      time.Time
	level   hclog.Level
	service string
	part    string // rest of the logger's name, after the service
	event   string
	fields  []field
}

// field is a key with its rendered, unquoted value.
type field struct {
	key  string
	text string
	bare bool // a JSON number, bool or document, printed without quotes
}

// sink writes the calls of a logger and its sub-loggers as lines. It is safe for concurrent use.
type sink struct {
	out     io.Writer
	levels  atomic.Pointer[levels]
	render  atomic.Pointer[func([]byte, line) []byte]
	repeats repeats
	bufs    sync.Pool // of *[]byte
}

// maxPooled is the size of the largest buffer that is reused, so that a huge line does not pin
// memory.
const maxPooled = 64 << 10

func newSink(out io.Writer) *sink {
	return &sink{out: out, repeats: repeats{by: make(map[kind]*repeat)}}
}

// Accept implements hclog.SinkAdapter. It receives calls of every level and filters them.
func (s *sink) Accept(name string, level hclog.Level, msg string, args ...any) {
	levels := s.levels.Load()
	if level < levels.least() {
		return
	}
	msg = unit.Clip(msg, maxText)
	k := kindOf(name, level, msg, args)
	if least := levels.of(k.service); level < least || least == hclog.Off {
		return
	}
	now := time.Now()
	s.sweep(now, false)
	if !s.repeats.pass(k, now) {
		return
	}
	l := line{at: now, level: level, service: k.service, event: msg, fields: fieldsOf(args)}
	_, l.part, _ = strings.Cut(name, ".")
	s.write(l)
}

// sweep writes the counts that are due: one line for all suppressed lines of a kind within its
// second. If final is set, it writes all counts.
func (s *sink) sweep(now time.Time, final bool) {
	for _, one := range s.repeats.over(now, final) {
		s.write(one.line(now))
	}
}

func (s *sink) write(l line) {
	buf, ok := s.bufs.Get().(*[]byte)
	if !ok {
		buf = new([]byte)
	}
	*buf = append((*s.render.Load())((*buf)[:0], l), '\n')
	_, _ = s.out.Write(*buf) // an error cannot be reported anywhere
	if cap(*buf) <= maxPooled {
		s.bufs.Put(buf)
	}
}

// kindOf returns the kind of a line. A field "service" replaces the logger's name, because a
// supervisor logs for many services.
func kindOf(name string, level hclog.Level, msg string, args []any) kind {
	k := kind{level: level, event: msg}
	k.service, _, _ = strings.Cut(name, ".")
	for i := 0; i+1 < len(args); i += 2 {
		key, _ := args[i].(string)
		switch v := args[i+1].(type) {
		case string:
			if key == "service" {
				k.service = v
			} else if key == "route" {
				k.route = v
			}
		case int:
			if key == "status" {
				k.status = strconv.Itoa(v)
			}
		}
	}
	return k
}

// fieldsOf returns the pairs in args. The last value of a repeated key wins. A value without a key
// is named "extra". A key that the line itself uses gets an underscore.
func fieldsOf(args []any) []field {
	fields := make([]field, 0, (len(args)+1)/2)
	for i := 0; i < len(args); i += 2 {
		if i+1 == len(args) {
			fields = putField(fields, fieldOf("extra", args[i]))
			break
		}
		if _, named := args[i+1].(string); named && args[i] == "service" {
			continue // used by the line itself
		}
		fields = putField(fields, fieldOf(keyOf(args[i]), args[i+1]))
	}
	return fields
}

func keyOf(k any) string {
	key, ok := k.(string)
	if !ok {
		key = fieldOf("", k).text
	}
	switch key = unit.Clip(key, maxText); key {
	case "ts", "level", "event", "part", "service":
		return key + "_"
	}
	return key
}

func putField(fields []field, f field) []field {
	for i := range fields {
		if fields[i].key == f.key {
			fields[i] = f
			return fields
		}
	}
	return append(fields, f)
}
