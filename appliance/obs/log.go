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
	"time"

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
		ring.setSweep(c.sink.sweep)
	}
	return c
}

// Logger is the node's logger; services take a named one of it.
func (c *Control) Logger() hclog.Logger {
	return c.base
}

// Set applies cfg to all services, those whose level was set by hand included.
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

// levels are the levels of the services. They are never changed, only replaced.
type levels struct {
	all hclog.Level
	by  map[string]hclog.Level
}

// of is the level of service.
func (l *levels) of(service string) hclog.Level {
	if own, ok := l.by[service]; ok {
		return own
	}
	return l.all
}

// least is the lowest level of all: no service writes a line below it.
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

// line is one log call, taken apart.
type line struct {
	at      time.Time
	level   hclog.Level
	service string
	part    string // what follows the service in the logger's name
	event   string
	fields  []field
}

// field is one key with its value; the value is rendered but not quoted.
type field struct {
	key  string
	text string
	bare bool // a JSON number, bool or document, printed as it is
}

// sink turns the calls of a logger and its sub-loggers into lines. It is safe for concurrent use.
type sink struct {
	out     io.Writer
	levels  atomic.Pointer[levels]
	render  atomic.Pointer[func([]byte, line) []byte]
	repeats repeats
	bufs    sync.Pool // of *[]byte
}

// maxPooled is the largest buffer that is kept: one giant line must not pin its memory.
const maxPooled = 64 << 10

func newSink(out io.Writer) *sink {
	return &sink{out: out, repeats: repeats{by: make(map[kind]*repeat)}}
}

// Accept implements hclog.SinkAdapter. It gets every level and filters here.
func (s *sink) Accept(name string, level hclog.Level, msg string, args ...any) {
	levels := s.levels.Load()
	if level < levels.least() {
		return
	}
	msg = clip(msg, maxText)
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

// sweep writes the sums that are due: one line for all repeats of a kind within its second. With final set it writes all there are.
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
	_, _ = s.out.Write(*buf) // there is nowhere left to report it
	if cap(*buf) <= maxPooled {
		s.bufs.Put(buf)
	}
}

// kindOf finds what a line is a repeat of. A field "service" stands for the logger's name: a supervisor logs for many.
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

// fieldsOf pairs up args. A key given again takes the later value, a value without key is "extra", a line's own key gets an underscore.
func fieldsOf(args []any) []field {
	fields := make([]field, 0, (len(args)+1)/2)
	for i := 0; i < len(args); i += 2 {
		if i+1 == len(args) {
			fields = putField(fields, fieldOf("extra", args[i]))
			break
		}
		if _, named := args[i+1].(string); named && args[i] == "service" {
			continue // the line's own
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
	switch key = clip(key, maxText); key {
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
