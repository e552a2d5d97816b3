package history

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"ronbox/engines/archive/object"
)

// Errors of Restore.
var (
	ErrNoMoment = errors.New("archive: it has no such moment")
	ErrSeveral  = errors.New("archive: several lines have this moment")
	ErrNodes    = errors.New("archive: it is of several nodes")
	ErrSigner   = errors.New("archive: another key has signed it")
)

// MomentError is returned for a moment that no line has. It is ErrNoMoment.
type MomentError struct {
	Before, After *object.Point // the nearest moments; nil: there is none
}

func (e *MomentError) Error() string {
	var text []string
	if e.Before != nil {
		text = append(text, "the nearest before is "+pointText(*e.Before))
	}
	if e.After != nil {
		text = append(text, "the nearest after is "+pointText(*e.After))
	}
	if text == nil {
		return ErrNoMoment.Error() + ": no line has a complete base"
	}
	return ErrNoMoment.Error() + ": " + strings.Join(text, ", ")
}

// Is reports whether target is ErrNoMoment.
func (e *MomentError) Is(target error) bool { return target == ErrNoMoment }

func pointText(p object.Point) string {
	return fmt.Sprintf("%s, command %d", p.Time().Format(time.RFC3339Nano), p.Seq)
}

// add notes a moment that exists.
func (e *MomentError) add(p object.Point, before bool) {
	switch {
	case before && (e.Before == nil || p.At > e.Before.At):
		e.Before = &p
	case !before && (e.After == nil || p.At < e.After.At):
		e.After = &p
	}
}

// SeveralError is returned for a moment that several lines have. It is ErrSeveral.
type SeveralError struct{ Lines []*Line }

func (e *SeveralError) Error() string {
	var text []string
	for _, l := range e.Lines {
		text = append(text, l.Node+"/"+l.ID)
	}
	return fmt.Sprintf("%v: %s", ErrSeveral, strings.Join(text, ", "))
}

// Is reports whether target is ErrSeveral.
func (e *SeveralError) Is(target error) bool { return target == ErrSeveral }

// NodesError is returned if an archive of several nodes is to be restored. It is ErrNodes.
type NodesError struct{ Nodes []string }

func (e *NodesError) Error() string {
	return fmt.Sprintf("%v: %s", ErrNodes, strings.Join(e.Nodes, ", "))
}

// Is reports whether target is ErrNodes.
func (e *NodesError) Is(target error) bool { return target == ErrNodes }

// Moment names a state of a file: one of its fields is set.
type Moment struct {
	At     time.Time // the last group that was stamped up to then
	Seq    uint64    // the group that ends with this command
	Stamp  time.Time // the last group before the one with this stamp
	Latest bool
}

// beyond reports whether the group that ends at p is beyond the moment.
func (m Moment) beyond(p object.Point) bool {
	switch {
	case m.Latest:
		return false
	case m.Seq > 0:
		return p.Seq > m.Seq
	case !m.Stamp.IsZero():
		return p.At >= m.Stamp.UnixNano()
	}
	return p.At > m.At.UnixNano()
}

// within reports whether a span has the moment. The end of a line is a moment, but what was after
// it is not known.
func (m Moment) within(s *Span) bool {
	if m.beyond(s.First) {
		return false
	}
	switch {
	case m.Seq > 0:
		return m.Seq <= s.Last.Seq
	case !m.Stamp.IsZero():
		return m.Stamp.UnixNano() <= s.Last.At
	}
	return m.Latest || m.At.UnixNano() <= s.Last.At
}

// find returns the one line that has a moment. line may be "" if all lines are of one node.
func (a *Archive) find(ctx context.Context, m Moment, line string) (*Line, *Span, error) {
	if nodes := a.Nodes(); line == "" && len(nodes) > 1 {
		return nil, nil, &NodesError{nodes}
	}
	var found []*Line
	var spans []*Span
	none := &MomentError{}
	for _, l := range a.Lines {
		if line != "" && l.ID != line {
			continue
		}
		s, err := a.Span(ctx, l)
		if err != nil {
			return nil, nil, err
		}
		switch {
		case s == nil:
		case s.Bad != nil && (m.Latest || !m.within(s) && !m.beyond(s.First)):
			return nil, nil, s.Bad
		case m.within(s):
			found, spans = append(found, l), append(spans, s)
		case m.beyond(s.First):
			none.add(s.First, false)
		default:
			none.add(s.Last, true)
		}
	}
	if last := newest(found, a.now); m.Latest && last >= 0 {
		return found[last], spans[last], nil
	}
	switch len(found) {
	case 0:
		return nil, nil, none
	case 1:
		return found[0], spans[0], nil
	}
	return nil, nil, &SeveralError{found}
}

// logs returns the log objects that lead from a base to a moment, by the names and, for the last
// one, a binary search over headers.
func (a *Archive) logs(ctx context.Context, l *Line, base uint64, m Moment) ([]Log, error) {
	from, exact := slices.BinarySearchFunc(l.Logs, base, func(o Log, seq uint64) int {
		switch {
		case o.Seq < seq:
			return -1
		case o.Seq > seq:
			return 1
		}
		return 0
	})
	if !exact && from > 0 {
		from-- // it begins before the base
	}
	lo, hi := from, len(l.Logs) // the first object of which every group is beyond
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		at, known, err := a.begin(ctx, l, mid)
		switch {
		case err != nil:
			return nil, err
		case known && (m.beyond(at) || m.Seq > 0 && at.Seq >= m.Seq):
			hi = mid
		default:
			lo = mid + 1
		}
	}
	return l.Logs[from:lo], nil
}

// begin returns where a log object begins: by its header, or if that is damaged by the one before.
// It reports false if both are.
func (a *Archive) begin(ctx context.Context, l *Line, i int) (at object.Point, known bool, err error) {
	h, err := a.logHeader(ctx, l.Logs[i].Name)
	if err == nil {
		return h.From, true, nil
	}
	if i > 0 && errors.Is(err, object.ErrDamaged) {
		if h, err = a.logHeader(ctx, l.Logs[i-1].Name); err == nil {
			return h.To, true, nil
		}
	}
	if errors.Is(err, object.ErrDamaged) {
		err = nil
	}
	return at, false, err
}
