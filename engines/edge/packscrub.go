package edge

import (
	"context"
	"time"
)

// Rehash reads every published pack again, by edge.packs.scrub_rate at most, and calls each with
// its outcome: nil, or a PackError. A pack whose structure or digest is not what it was has failed
// from then on, also after a restart. Packs that are being opened or verified are left out. The
// error is the cause of ctx. It blocks for as long as reading takes, and may run beside requests
// and verifications.
func (s *PackSet) Rehash(ctx context.Context, each func(PackInfo, error)) error {
	for _, id := range s.current.Load().ids() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		e := s.current.Load().packs[id]
		switch {
		case e.info.State == PackFailed:
			each(e.info, &PackError{ID: id, State: PackFailed, Reason: e.info.Fault})
		case e.info.State == PackVerified && e.pack.hold():
			err := s.rehash(ctx, e)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if now, err2 := s.Info(id); err2 == nil { // else it was removed meanwhile
				each(now, err)
			}
		}
	}
	return nil
}

// rehash reads one pack, which it lets go.
func (s *PackSet) rehash(ctx context.Context, e packEntry) error {
	p := e.pack
	defer p.Close()
	if !p.unchanged() {
		return s.changed(p.info.ID)
	}
	var r PackReport
	began := time.Now()
	err := guarded(func() (err error) {
		r, err = p.verify(ctx, func(done, _ int64) { pace(ctx, began, done, int64(p.env.cfg.ScrubRate)) })
		return err
	})
	switch r = r.expect(e.info.Digest); {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && !p.unchanged():
		return s.changed(p.info.ID)
	case err == nil && len(r.Faults) == 0:
		return nil
	case err == nil:
		s.finish(ctx, p, r, nil)
		return &PackError{ID: p.info.ID, State: PackFailed, Reason: r.Faults[0]}
	}
	s.finish(ctx, p, r, err)
	return &PackError{ID: p.info.ID, State: PackFailed, Reason: err.Error()}
}

// pace waits until done bytes may have been read at rate bytes a second, or ctx ends.
func pace(ctx context.Context, began time.Time, done, rate int64) {
	wait := time.Until(began.Add(time.Duration(float64(done) / float64(rate) * float64(time.Second))))
	if wait <= 0 {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
