package obs

import (
	"io"
	"strings"
	"sync"
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

// sink turns the calls of a logger and its sub-loggers into lines. The logger's mutex serialises Accept.
type sink struct {
	out    io.Writer
	level  func() hclog.Level
	render func([]byte, line) []byte
	bufs   sync.Pool // of *[]byte
}

// maxPooled is the largest buffer that is kept: one giant line must not pin its memory.
const maxPooled = 64 << 10

// Accept implements hclog.SinkAdapter. It gets every level and filters here.
func (s *sink) Accept(name string, level hclog.Level, msg string, args ...any) {
	if least := s.level(); level < least || least == hclog.Off {
		return
	}
	l := line{at: time.Now(), level: level, event: msg, fields: fieldsOf(args)}
	l.service, l.part, _ = strings.Cut(name, ".")
	l.takeService()
	buf, ok := s.bufs.Get().(*[]byte)
	if !ok {
		buf = new([]byte)
	}
	*buf = append(s.render((*buf)[:0], l), '\n')
	_, _ = s.out.Write(*buf) // there is nowhere left to report it
	if cap(*buf) <= maxPooled {
		s.bufs.Put(buf)
	}
}

// takeService lets a field "service" stand for the logger's name: a supervisor logs for many.
func (l *line) takeService() {
	for i, f := range l.fields {
		if f.key == "service" {
			l.service = f.text
			l.fields = append(l.fields[:i], l.fields[i+1:]...)
			return
		}
	}
}

// fieldsOf pairs up args. A key given again takes the later value, a value without key is "extra", a line's own key gets an underscore.
func fieldsOf(args []any) []field {
	fields := make([]field, 0, (len(args)+1)/2)
	for i := 0; i < len(args); i += 2 {
		if i+1 == len(args) {
			fields = putField(fields, fieldOf("extra", args[i]))
			break
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
	switch key {
	case "ts", "level", "event", "part":
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
