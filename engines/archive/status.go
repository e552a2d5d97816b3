package archive

import (
	"errors"
	"sync/atomic"
	"time"

	"ronbox/appliance/obs"
	"ronbox/engines/archive/object"
	"ronbox/engines/archive/target"
)

// State is the state of an archive in one word.
type State string

// The states.
const (
	StateOff      State = "off"
	StateStarting State = "starting" // there is no complete base yet
	StateOK       State = "ok"
	StateBehind   State = "behind"         // the target does not take what is to be sent
	StateFull     State = "full"           // capture has stopped for want of space
	StateForeign  State = "foreign"        // another node has written into a line of this one
	StateChanged  State = "target_changed" // the target has lost its mark
	StateFailed   State = "failed"         // the local files could not be read at the start: nothing is captured
)

// States returns all states.
func States() []State {
	return []State{StateOff, StateStarting, StateOK, StateBehind, StateFull, StateForeign, StateChanged, StateFailed}
}

// Status describes an archive.
type Status struct {
	State       State
	Target      string
	Line        string
	Signer      string
	Seq         uint64 // end of the line
	SentSeq     uint64 // of it in the target
	SentAt      time.Time
	Lag         time.Duration // age of the oldest group that is not in the target
	Unsent      int64         // bytes of raw files and of objects that were not sent
	Local       int64         // bytes of all local files but those of the base
	BaseSeq     uint64
	BaseAt      time.Time // when the newest complete base was taken
	BaseDue     time.Time // since when another one is due that is not in the target; zero: none is
	BaseParts   int       // of the base that is being sent
	PartsSent   int
	LastSuccess time.Time
	LastError   string
	Advice      string
}

// lagsAfter is the time that the oldest group may wait beyond every.
const lagsAfter = 30 * time.Second

// Status returns the state of the archive.
func (a *Archive) Status() Status {
	r, cfg := a.record.read(), a.cfg.Load()
	s := Status{Target: cfg.Target, Signer: a.key.Load().Signer(), LastSuccess: r.LastSuccess}
	raw, first := a.tap.waiting()
	out, older := a.queue.waiting()
	s.Unsent = raw + out
	if oldest := olderOf(first, older); oldest != 0 {
		s.Lag = ageOf(a.d.Now(), oldest)
	}
	a.tap.mu.Lock()
	s.Local = a.tap.local
	a.tap.mu.Unlock()
	l := r.current()
	if l != nil {
		s.Line, s.Seq, s.SentSeq, s.SentAt = l.ID, a.tap.position().Seq(), l.SentSeq, l.SentAt
		if wanted := a.wanted.Load(); wanted != 0 {
			s.BaseDue = time.Unix(0, wanted)
		} else if l.Next != nil {
			s.BaseDue = l.Next.MadeAt
		}
		if l.Base != nil {
			s.BaseSeq, s.BaseAt = l.Base.Seq, l.Base.MadeAt
		}
		if l.Next != nil {
			s.BaseParts, s.PartsSent = l.Next.Parts, l.Next.Sent
		}
	}
	steps := []*atomic.Pointer[failure]{&a.unbound, &a.unsent, &a.unpacked, &a.untended, &a.unbased, &a.unpruned}
	for _, step := range steps {
		if f := step.Load(); f != nil {
			s.LastError = f.err.Error()
			break
		}
	}
	s.State, s.Advice = a.judge(r, l, s.Lag)
	return s
}

// judge returns the state, which is that of the line, and the advice that goes with it.
func (a *Archive) judge(r *record, l *line, lag time.Duration) (State, string) {
	is := func(step *atomic.Pointer[failure], err error) bool {
		f := step.Load()
		return f != nil && errors.Is(f.err, err)
	}
	switch {
	case a.unbound.Load() != nil:
		return StateFailed, "the local files could not be read: see last_error, then restart the node"
	case is(&a.unsent, target.ErrChanged), is(&a.unpruned, target.ErrChanged):
		return StateChanged, "mount the target, or name an empty directory or an unused prefix as archive.target, " +
			"and restart"
	case r.Foreign:
		return StateForeign, "stop the other node, then run `ronbox archive base`"
	case a.tap.reason() == reasonFull || l != nil && l.Ended == reasonFull:
		return StateFull, "make room on the disk or raise archive.max_local; a new line begins when all is sent"
	case is(&a.unsent, target.ErrDenied):
		return StateBehind, "let the node write the target: see last_error"
	case is(&a.unsent, target.ErrFull):
		return StateBehind, "make room in the target, or shorten archive.keep"
	case a.unpacked.Load() != nil, a.untended.Load() != nil:
		return StateBehind, "let the node write its local files: see last_error"
	case a.unsent.Load() != nil || lag > a.cfg.Load().Every.D()+lagsAfter:
		return StateBehind, "see last_error; what is kept is sent once the target answers"
	case a.unbased.Load() != nil:
		return stateOf(l), "a base is due and cannot be taken: see last_error"
	case is(&a.unpruned, target.ErrDenied):
		return stateOf(l), `let the node list and delete in the target, or set archive.keep = "0s" and prune elsewhere`
	case a.unpruned.Load() != nil:
		return stateOf(l), "what is older than archive.keep is not deleted: see last_error"
	case stateOf(l) == StateStarting:
		return StateStarting, "wait for the first base: until then nothing can be restored"
	}
	return StateOK, ""
}

// stateOf returns the state of a line of which everything was sent.
func stateOf(l *line) State {
	if l == nil || l.Base == nil {
		return StateStarting
	}
	return StateOK
}

// series are the metrics of an archive.
type series struct {
	sent, unsent, bytes, lines map[string]func(int)
}

// Families returns the metrics of the archive, for a node without one.
func Families() []obs.Family {
	gauge := func(name, help string) obs.Family { return obs.Family{Name: name, Help: help, Type: obs.Gauge} }
	state := gauge("archive_state", "1 for the state that the archive is in.")
	state.Labels = []string{"state"}
	return []obs.Family{
		gauge("archive_lag_seconds", "Age of the oldest group of commands that is not in the target; 0: none."),
		gauge("archive_unsent_bytes", "Bytes of changes on the local disk that are not in the target."),
		gauge("archive_local_bytes", "Bytes of the local files of the archive, without a base."),
		gauge("archive_last_success_seconds", "Unix time of the last object that the target took; 0: none."),
		gauge("archive_base_seconds", "Unix time at which the newest complete base was taken; 0: none."),
		gauge("archive_base_due_seconds", "Unix time since which a base is due and not in the target; 0: none."),
		state,
		{Name: "archive_objects_total", Type: obs.Counter, Labels: []string{"kind", "result"},
			Help: "Objects given to the target, by kind (log, base, period) and result (ok, failed)."},
		{Name: "archive_bytes_total", Type: obs.Counter, Labels: []string{"kind"},
			Help: "Bytes that the target took, by kind of object."},
		{Name: "archive_lines_total", Type: obs.Counter, Labels: []string{"reason"},
			Help: "Lines begun, by reason (first, gap, full, schema, incarnation, signer, foreign)."},
	}
}

func newSeries(m *obs.Metrics, a *Archive) *series {
	if m == nil {
		m = obs.NewMetrics()
	}
	m.Declare(Families()...)
	s := &series{
		sent: map[string]func(int){}, unsent: map[string]func(int){}, bytes: map[string]func(int){},
		lines: map[string]func(int){},
	}
	for _, kind := range []string{object.Log, object.Base, object.Period} {
		s.sent[kind] = m.Counter("archive_objects_total", Service, "kind", kind, "result", "ok")
		s.unsent[kind] = m.Counter("archive_objects_total", Service, "kind", kind, "result", "failed")
		s.bytes[kind] = m.Counter("archive_bytes_total", Service, "kind", kind)
	}
	for _, reason := range []string{
		reasonFirst, reasonGap, reasonFull, reasonSchema, reasonIncarnation, reasonSigner, reasonForeign,
	} {
		s.lines[reason] = m.Counter("archive_lines_total", Service, "reason", reason)
	}
	unix := func(t time.Time) float64 {
		if t.IsZero() {
			return 0
		}
		return float64(t.UnixNano()) / float64(time.Second)
	}
	for name, read := range map[string]func(Status) float64{
		"archive_lag_seconds":          func(s Status) float64 { return s.Lag.Seconds() },
		"archive_unsent_bytes":         func(s Status) float64 { return float64(s.Unsent) },
		"archive_local_bytes":          func(s Status) float64 { return float64(s.Local) },
		"archive_last_success_seconds": func(s Status) float64 { return unix(s.LastSuccess) },
		"archive_base_seconds":         func(s Status) float64 { return unix(s.BaseAt) },
		"archive_base_due_seconds":     func(s Status) float64 { return unix(s.BaseDue) },
	} {
		m.Gauge(name, Service, func() float64 { return read(a.Status()) })
	}
	for _, state := range States() {
		m.Gauge("archive_state", Service, func() float64 {
			if a.Status().State == state {
				return 1
			}
			return 0
		}, "state", string(state))
	}
	return s
}
