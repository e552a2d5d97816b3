package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/httpapi/wire"
)

var (
	// ErrStop may be returned by the function that a stream or an export calls, to end it without
	// an error.
	ErrStop = errors.New("stop the stream")
	// ErrResume may be returned by the function that a stream calls, to end the connection. The
	// stream resumes after the last event that the function accepted.
	ErrResume = errors.New("read what the stream left out")
)

// StreamOptions configures the start of a stream and its reconnects.
type StreamOptions struct {
	LastEventID string        // replay events after this version or row; empty: only new events
	Tries       int           // consecutive connections without an event until the stream gives up; 0: no limit
	Idle        time.Duration // silence that ends a connection; 0: DefaultIdle
	Reconnect   func(cause error, delay time.Duration)
}

// DefaultIdle is three ping intervals of the node.
const DefaultIdle = 45 * time.Second

const (
	firstDelay = 3 * time.Second // until the node requests another
	minDelay   = 50 * time.Millisecond
	maxDelay   = 30 * time.Second
)

// Event is one event of a stream. Data is JSON of the type that belongs to Name.
type Event struct {
	ID   string
	Name string
	Data jsontext.Value
}

// silentError is the cause of the end of a silent connection.
type silentError struct{ idle time.Duration }

func (e *silentError) Error() string {
	return fmt.Sprintf("nothing from the node for %s, not even a ping", e.idle)
}

// watch returns a timer that cancels a connection after idle.
func watch(cancel context.CancelCauseFunc, idle time.Duration) *time.Timer {
	//rawchan: it ends one connection of a client, which has no catalogue
	return time.AfterFunc(idle, func() { cancel(&silentError{idle}) })
}

// Feed describes an event stream of the node.
type Feed struct {
	Path     string
	Query    Query
	Numbered string                                    // name of the events with ids
	Stands   func(hello []byte) (id uint64, err error) // the last event before the stream, from its first frame
	// Bare feeds have no hello. All their events have ids. A frame without data has the id of the
	// last event that was sent or left out; it is an Event without a name.
	Bare bool
}

// numbered reports whether events of a name have ids of their own.
func (f *Feed) numbered(name string) bool {
	return name == f.Numbered || f.Bare && name != wire.EventShutdown
}

// Follow calls each for every event of f, and reconnects with Last-Event-ID when the connection
// breaks. It blocks until ctx ends, each returns an error, the node refuses permanently, or Tries
// is exceeded. The first connection is tried once: if the node is not reachable, Follow returns.
func (c *Client) Follow(ctx context.Context, f Feed, o StreamOptions, each func(Event) error) error {
	if o.Idle == 0 {
		o.Idle = DefaultIdle
	}
	s := &stream{c: c, feed: f, o: o, lastID: o.LastEventID, delay: firstDelay, each: each}
	for {
		err := s.connect(ctx)
		if s.done(ctx, err) {
			return s.result(ctx, err)
		}
		wait := s.wait(err)
		if o.Reconnect != nil {
			o.Reconnect(err, wait)
		}
		if err := Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// stream is the state of one stream. Only its caller's goroutine uses it.
type stream struct {
	feed   Feed
	c      *Client
	o      StreamOptions
	each   func(Event) error
	lastID string
	delay  time.Duration
	fails  int  // consecutive connections without an event
	ever   bool // a connection was accepted
	final  bool // each returned an error
}

// connect runs one connection until it ends, which is always an error.
func (s *stream) connect(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	k := Call{
		Method: http.MethodGet,
		Path:   s.feed.Path,
		Query:  s.feed.Query,
		Header: http.Header{"Accept": {"text/event-stream"}},
	}
	if s.lastID != "" {
		k.Header.Set("Last-Event-ID", s.lastID)
	}
	watchdog := watch(cancel, s.o.Idle)
	defer watchdog.Stop()
	s.fails++
	resp, err := s.c.send(ctx, k)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return fmt.Errorf("%s: the answer is not an event stream", k)
	}
	s.ever = true
	frames := NewFrameReader(alive{resp.Body, watchdog, s.o.Idle})
	frames.bare = s.feed.Bare
	err = s.run(frames)
	if s.final || errors.Is(err, ErrFrame) || errors.Is(err, ErrResume) {
		return err
	}
	return s.c.transportError(ctx, k.String(), err)
}

// run delivers the frames of one connection.
func (s *stream) run(frames *FrameReader) error {
	for {
		f, err := frames.Next()
		if d := frames.Retry(); d > 0 {
			s.delay = min(max(d, minDelay), maxDelay)
		}
		if err != nil {
			return err
		}
		s.fails = 0
		switch {
		case s.feed.Bare && f.Data == nil:
			f.Event = ""
		case s.feed.numbered(f.Event) && !after(f.ID, s.lastID):
			continue // delivered before the connection broke
		case !jsontext.Value(f.Data).IsValid():
			return fmt.Errorf("%w: event %s holds no JSON", ErrFrame, f.Event)
		}
		if err := s.each(Event{ID: f.ID, Name: f.Event, Data: f.Data}); err != nil {
			s.final = !errors.Is(err, ErrResume)
			return err
		}
		if err := s.note(f); err != nil {
			return err
		}
	}
}

// note records where to resume. A stream of new events resumes after the last event named in its
// first frame, so that no event is lost if it breaks before its first event.
func (s *stream) note(f Frame) error {
	var id uint64
	var err error
	switch {
	case f.Event == wire.EventLagged: // its own id is missing if the log is empty
		id, err = laggedTo(f.Data)
	case f.ID != "":
		s.lastID = f.ID
		return nil
	case f.Event == wire.EventHello && s.lastID == "":
		id, err = s.feed.Stands(f.Data)
	default:
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: event %s: %w", ErrFrame, f.Event, err)
	}
	s.lastID = strconv.FormatUint(id, 10)
	return nil
}

// laggedTo returns the last event that a lagged frame replaces.
func laggedTo(data []byte) (uint64, error) {
	var gap struct {
		To uint64 `json:"to"`
	}
	err := json.Unmarshal(data, &gap)
	return gap.To, err
}

// done reports whether err ends the stream, not only the connection.
func (s *stream) done(ctx context.Context, err error) bool {
	if ctx.Err() != nil || s.final || !s.ever || errors.Is(err, ErrFrame) {
		return true
	}
	if p, ok := errors.AsType[*wire.Problem](err); ok && !p.Retryable {
		return true
	}
	return s.o.Tries > 0 && s.fails >= s.o.Tries
}

func (s *stream) result(ctx context.Context, err error) error {
	if errors.Is(err, ErrStop) {
		return nil
	}
	if ctx.Err() != nil && !s.final {
		return context.Cause(ctx)
	}
	return err
}

// wait returns the delay after err: that of the node, within bounds.
func (s *stream) wait(err error) time.Duration {
	d := s.backoff()
	if p, ok := errors.AsType[*wire.Problem](err); ok {
		d = max(d, time.Duration(min(p.RetryAfter, int(maxDelay/time.Second)))*time.Second)
	}
	return d
}

// backoff doubles the node's delay with each connection without an event, and draws from its upper
// half.
func (s *stream) backoff() time.Duration {
	d := min(s.delay<<min(max(s.fails-1, 0), 4), maxDelay)
	return d/2 + rand.N(d/2+1)
}

// after reports whether id is a later version than last; ids that are no numbers are always new.
func after(id, last string) bool {
	a, errA := strconv.ParseUint(id, 10, 64)
	b, errB := strconv.ParseUint(last, 10, 64)
	return errA != nil || errB != nil || a > b
}

// alive lets the watchdog bark when a read brings nothing for as long as idle, not even a ping.
// What its reader does between reads takes as long as it takes.
type alive struct {
	r        io.Reader
	watchdog *time.Timer
	idle     time.Duration
}

func (a alive) Read(p []byte) (int, error) {
	a.watchdog.Reset(a.idle)
	defer a.watchdog.Stop()
	return a.r.Read(p)
}

// Sleep waits for d, or until ctx ends, and gives its cause then.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
