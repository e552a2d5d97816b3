package history

import (
	"context"
	"errors"
	"slices"
	"time"

	"ronbox/engines/archive/object"
	"ronbox/engines/archive/target"
)

// Span describes the moments that a line has.
type Span struct {
	Incarnation string
	Signer      string
	First       object.Point // the oldest complete base
	Last        object.Point
	Whole       []Base         // the complete bases, oldest first
	points      []object.Point // of them
	logged      uint64         // command that the log leads to
	apart       bool           // no base leads to the log
	Ahead       time.Duration  // stamps of the end before the time at which it was made
	End         time.Time      // when the last object was made, by the node's clock
	Bad         error          // of newer log objects, which cannot be read
}

// Span returns the moments of a line, or nil if it has no complete base. It lists the line again if
// an object was deleted since.
func (a *Archive) Span(ctx context.Context, l *Line) (*Span, error) {
	s, err := a.span(ctx, l)
	if !errors.Is(err, target.ErrNotExist) {
		return s, err
	}
	now, err := a.again(ctx, l)
	if err != nil {
		return nil, err
	}
	*l = *now
	return a.span(ctx, l)
}

func (a *Archive) span(ctx context.Context, l *Line) (*Span, error) {
	s := &Span{}
	for i := range l.Bases {
		h, whole, err := a.whole(ctx, &l.Bases[i])
		if err != nil {
			return nil, err
		}
		if !whole {
			continue
		}
		at := object.Point{Seq: h.Seq, At: h.BaseHeader.At}
		s.Whole, s.points = append(s.Whole, l.Bases[i]), append(s.points, at)
		s.Incarnation, s.Signer, s.Last, s.End, s.Ahead = h.Incarnation, h.Signer, at, h.MadeAt, at.Time().Sub(h.MadeAt)
	}
	if len(s.Whole) == 0 {
		return nil, nil
	}
	leads, err := a.dropEarly(ctx, l, s)
	if err != nil {
		return nil, err
	}
	s.First, s.apart = s.points[0], !leads
	if s.apart {
		return s, nil
	}
	for _, o := range slices.Backward(l.Logs) {
		h, err := a.logHeader(ctx, o.Name)
		if errors.Is(err, object.ErrDamaged) {
			s.Bad = err
			continue
		}
		if err == nil {
			s.logged = h.To.Seq
		}
		if err == nil && h.To.Seq > s.Last.Seq {
			s.Last, s.End, s.Ahead = h.To, h.MadeAt, h.To.Time().Sub(h.MadeAt)
		}
		return s, err
	}
	return s, nil
}

// dropEarly drops bases from before the log, which do not lead to it, if there are later ones: the
// line began while a group was being written. It reports whether a base leads to the log.
func (a *Archive) dropEarly(ctx context.Context, l *Line, s *Span) (leads bool, err error) {
	for len(l.Logs) > 0 && s.points[0].Seq < l.Logs[0].Seq {
		h, err := a.logHeader(ctx, l.Logs[0].Name)
		if errors.Is(err, object.ErrDamaged) || err == nil && h.Prev != "" {
			return true, nil // what is missing shows when it is read
		}
		if err != nil || len(s.Whole) == 1 {
			return false, err
		}
		s.Whole, s.points = s.Whole[1:], s.points[1:]
	}
	return true, nil
}
