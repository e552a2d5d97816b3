package httpapi

import (
	"net/http"
	"strconv"
	"time"
)

// sse writes frames, each within its own write deadline: a client that stalls is dropped, whatever it has read before.
type sse struct {
	out *rolling
	buf []byte
}

// openSSE writes the headers.
func openSSE(c *call) *sse {
	c.set("Content-Type", typeEvents)
	c.set("Cache-Control", cacheNone)
	c.set("X-Accel-Buffering", "no") // nginx would hold frames back
	c.WriteHeader(http.StatusOK)
	return &sse{out: newRolling(c)}
}

// retry tells the client how long to wait before it comes back.
func (s *sse) retry(d time.Duration) {
	s.buf = append(s.buf, "retry: "...)
	s.buf = strconv.AppendInt(s.buf, d.Milliseconds(), 10)
	s.buf = append(s.buf, '\n', '\n')
}

// event adds a frame. data is one line, as JSON always is; id is left out when it is 0.
func (s *sse) event(name string, id uint64, data []byte) {
	if id > 0 {
		s.buf = append(s.buf, "id: "...)
		s.buf = strconv.AppendUint(s.buf, id, 10)
		s.buf = append(s.buf, '\n')
	}
	s.buf = append(append(append(s.buf, "event: "...), name...), '\n')
	s.buf = append(append(append(s.buf, "data: "...), data...), '\n', '\n')
}

// ping adds a comment, which clients skip.
func (s *sse) ping() { s.buf = append(s.buf, ": ping\n\n"...) }

// flush sends what was added.
func (s *sse) flush() error {
	_, err := s.out.Write(s.buf)
	s.buf = s.buf[:0]
	return err
}
