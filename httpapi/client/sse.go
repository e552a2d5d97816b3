package client

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Bounds of an event stream. A frame of the node has some hundred bytes; a row of the audit chain
// can have 3 MiB.
const (
	maxLine = 4 << 20
	maxData = 4 << 20
)

// ErrFrame is returned if a stream exceeds the bounds.
var ErrFrame = errors.New("event stream out of bounds")

// Frame is one event of a text/event-stream as defined by the WHATWG standard.
type Frame struct {
	ID    string // the last id, of this frame or an earlier one
	Event string // "message" if the frame has none
	Data  []byte // lines joined by LF; the reader does not reuse it
}

// FrameReader parses a text/event-stream within fixed bounds. It skips comments and unknown fields.
type FrameReader struct {
	r      *bufio.Reader
	lastID string
	retry  time.Duration
	first  bool // no line was read yet: a byte order mark may follow
	wasCR  bool // the previous line ended with CR: an LF belongs to it
	bare   bool // a frame with an id and without data is returned too
}

// NewFrameReader returns a FrameReader with a buffer.
func NewFrameReader(r io.Reader) *FrameReader {
	return &FrameReader{r: bufio.NewReaderSize(r, 16<<10), first: true}
}

// Retry returns the reconnection delay that the server requested last, or 0.
func (f *FrameReader) Retry() time.Duration { return f.retry }

// Next returns the next frame with data. It returns io.EOF at the end of the stream and drops an
// incomplete frame, as the standard requires.
func (f *FrameReader) Next() (Frame, error) {
	frame := Frame{Event: "message"}
	has, before := false, f.lastID
	for {
		line, err := f.line()
		if err != nil {
			return Frame{}, err
		}
		if line == "" {
			if has || f.bare && f.lastID != before {
				frame.ID = f.lastID
				return frame, nil
			}
			frame = Frame{Event: "message"}
			continue
		}
		if has, err = f.field(line, &frame, has); err != nil {
			return Frame{}, err
		}
	}
}

// field applies one line to the frame and reports whether the frame has data.
func (f *FrameReader) field(line string, frame *Frame, has bool) (bool, error) {
	name, value, _ := strings.Cut(line, ":")
	value = strings.TrimPrefix(value, " ")
	switch name {
	case "event":
		if frame.Event = value; value == "" {
			frame.Event = "message"
		}
	case "data":
		if len(frame.Data)+len(value)+1 > maxData {
			return has, fmt.Errorf("%w: more than %d bytes of data in one frame", ErrFrame, maxData)
		}
		if has {
			frame.Data = append(frame.Data, '\n')
		}
		frame.Data = append(frame.Data, value...)
		return true, nil
	case "id":
		if !strings.ContainsRune(value, 0) {
			f.lastID = value
		}
	case "retry":
		if ms, err := strconv.ParseUint(value, 10, 31); err == nil {
			f.retry = time.Duration(ms) * time.Millisecond
		}
	}
	return has, nil // a comment has an empty name
}

// line reads up to LF, CR or CRLF, and returns the line without them.
func (f *FrameReader) line() (string, error) {
	var b []byte
	for {
		c, err := f.r.ReadByte()
		if err != nil {
			return "", err // an incomplete line is dropped
		}
		if c == '\n' && f.wasCR {
			f.wasCR = false
			continue
		}
		f.wasCR = c == '\r'
		if c == '\n' || c == '\r' {
			break
		}
		if b = append(b, c); len(b) > maxLine {
			return "", fmt.Errorf("%w: a line of more than %d bytes", ErrFrame, maxLine)
		}
	}
	if f.first {
		f.first = false
		b = bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))
	}
	return string(b), nil
}
