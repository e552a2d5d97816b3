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
	// ErrStop, returned by the function that a stream or an export calls, ends it without an error.
	ErrStop = errors.New("stop the stream")
	// ErrResume, returned by the function that a stream calls, ends the connection and not the stream, which resumes behind the
	// last event that the function took.
	ErrResume = errors.New("read what the stream left out")
)

// StreamOptions says where a stream begins and how it lives on.
type StreamOptions struct {
	LastEventID string        // replay what follows this version or row; empty: begin with what comes next
	Tries       int           // connections in a row without an event after which the stream gives up; 0: never
	Idle        time.Duration // silence after which a connection counts as dead, DefaultIdle when 0
	Reconnect   func(cause error, delay time.Duration)
}

// DefaultIdle is three of the node's pings.
const DefaultIdle = 45 * time.Second

const (
	firstDelay = 3 * time.Second // until the node says another
	minDelay   = 50 * time.Millisecond
	maxDelay   = 30 * time.Second
)

// Event is one event of a stream: Data is the JSON of the type that its Name stands for.
type Event struct {
	ID   string
	Name string
	Data jsontext.Value
}

// silentError is the cause of a connection given up for its silence.
type silentError struct{ idle time.Duration }

func (e *silentError) Error() string {
	return fmt.Sprintf("nothing from the node for %s, not even a ping", e.idle)
}

// watch ends a connection by its context when alive hears nothing for as long as idle.
func watch(cancel context.CancelCauseFunc, idle time.Duration) *time.Timer {
	//rawchan: it ends one connection of a client, which has no catalogue
	return time.AfterFunc(idle, func() { cancel(&silentError{idle}) })
}

// Feed is one event stream of the node.
type Feed struct {
	Path     string
	Numbered string                                    // name of the events that have an id of their own
	Stands   func(hello []byte) (id uint64, err error) // the last event before the stream, by its first frame
}

// Follow calls each for every event of f, and reconnects with Last-Event-ID when the connection breaks. It blocks until ctx
// ends, each returns an error, the node refuses for good, or Tries is used up. The first connection is tried once: a node that is
// not there is an answer.
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

// stream is the state of one stream, used by its caller's goroutine alone.
type stream struct {
	feed   Feed
	c      *Client
	o      StreamOptions
	each   func(Event) error
	lastID string
	delay  time.Duration
	fails  int  // connections in a row that brought no event
	ever   bool // some connection was accepted
	final  bool // each returned an error
}

// connect runs one connection to its end, which is always an error.
func (s *stream) connect(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	k := Call{Method: http.MethodGet, Path: s.feed.Path}
	req, err := s.c.request(ctx, k)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	if s.lastID != "" {
		req.Header.Set("Last-Event-ID", s.lastID)
	}
	watchdog := watch(cancel, s.o.Idle)
	defer watchdog.Stop()
	s.fails++
	resp, err := s.c.http.Do(req)
	if err != nil {
		return s.c.transportError(ctx, k.String(), err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return s.c.decodeProblem(resp)
	}
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return fmt.Errorf("%s: the answer is no event stream", k)
	}
	s.ever = true
	frames := NewFrameReader(alive{resp.Body, watchdog, s.o.Idle})
	err = s.run(frames)
	if s.final || errors.Is(err, ErrFrame) || errors.Is(err, ErrResume) {
		return err
	}
	return s.c.transportError(ctx, k.String(), err)
}

// run passes the frames of one connection on.
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
		if f.Event == s.feed.Numbered && !after(f.ID, s.lastID) {
			continue // seen before the connection broke
		}
		if !jsontext.Value(f.Data).IsValid() {
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

// note keeps where to resume. A stream that begins with what comes next resumes behind what its first frame says there
// is, so that nothing is lost if it breaks before the first event.
func (s *stream) note(f Frame) error {
	var id uint64
	var err error
	switch {
	case f.Event == wire.EventLagged: // its own id is missing where the log is empty
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

// laggedTo is the last event that a lagged frame of any feed stands for.
func laggedTo(data []byte) (uint64, error) {
	var gap struct {
		To uint64 `json:"to"`
	}
	err := json.Unmarshal(data, &gap)
	return gap.To, err
}

// done reports whether err ends the stream rather than the connection.
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

// wait is how long to stay away after err: as long as the node says, within reason.
func (s *stream) wait(err error) time.Duration {
	d := s.backoff()
	if p, ok := errors.AsType[*wire.Problem](err); ok {
		d = max(d, time.Duration(min(p.RetryAfter, int(maxDelay/time.Second)))*time.Second)
	}
	return d
}

// backoff doubles the node's delay with each fruitless connection and takes it at random from its upper half.
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

// alive lets the watchdog bark when a read brings nothing for as long as idle, not even a ping. What its reader does between
// reads takes as long as it takes.
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
