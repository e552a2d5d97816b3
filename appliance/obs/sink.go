package obs

import (
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

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
