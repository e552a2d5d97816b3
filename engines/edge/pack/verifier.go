package pack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/edge/asset"
)

// Tasks of the packs.
const (
	TaskScanner  = "pack_scanner"
	TaskOpener   = "pack_opener"
	TaskVerifier = "verifier"
)

const (
	verifyQueue = 32
	verifiers   = 2 // so that one slow pack does not delay all others
)

// Tasks returns the tasks of the packs.
func (s *Set) Tasks() []flow.Task {
	return []flow.Task{
		{Service: service, Name: TaskScanner, Restart: flow.Always, Background: true,
			Doc: "lists the folder of packs", Run: s.runScanner},
		{Service: service, Name: TaskOpener, Restart: flow.Always, Background: true,
			Doc: "opens packs, each for edge.packs.statement_timeout at most", Run: s.runOpener},
		{
			Service:    service,
			Name:       TaskVerifier,
			Count:      verifiers,
			Restart:    flow.Always,
			Background: true,
			Lanes:      []string{"store.work"},
			Doc:        "verifies and replaces packs, one at a time",
			Run:        s.runVerifier,
		},
	}
}

// Recover reads the remembered results and lists the folder. It opens no pack file; the opener
// does. If the row is bad, it is dropped, and the packs are verified again. If the folder cannot be
// read, the node starts without packs and logs the error.
func (s *Set) Recover(ctx context.Context) error {
	rows, err := s.recall(ctx)
	if err = errors.Join(err, s.openCaches()); err != nil {
		return fmt.Errorf("packs: %w", err)
	}
	s.update(func(next *generation) { next.rows = rows }) // the packs of Stand stay open
	if !s.Amnesia {
		s.sweep()
	}
	if _, err := os.Stat(s.dir); errors.Is(err, fs.ErrNotExist) && s.dir != filepath.Join(s.DataDir, "packs") {
		s.Log.Warn("no packs", "reason", err.Error(), "next",
			"make the folder or mount its disk, then `ronbox edge packs rescan`")
	}
	_ = s.scan(lookAtOnce) // scan logs its error
	return nil
}

// runVerifier verifies packs, and remembers the results of uploads.
func (s *Set) runVerifier(ctx context.Context) error {
	return s.follow(ctx, func(g *generation) bool {
		s.remember(ctx)
		p := g.take()
		if p != nil {
			s.verify(ctx, p, g.rows[p.info.File])
		}
		return p != nil
	})
}

// take returns an unverified pack that no other verifier has taken, with a reference, or nil. Packs
// to be checked come before packs to be hashed, and smaller ones before larger ones.
func (g *generation) take() *Pack {
	for {
		var first *Pack
		for _, e := range g.packs {
			p := e.unverified()
			if p != nil && !p.taken.Load() && (first == nil || p.before(first)) {
				first = p
			}
		}
		switch {
		case first == nil || !first.hold():
			return nil // if hold failed, g is no longer current
		case first.taken.CompareAndSwap(false, true):
			return first
		}
		first.Close()
	}
}

// before reports whether p is verified before o.
func (p *Pack) before(o *Pack) bool {
	if known := p.checked.Load() != nil; known != (o.checked.Load() != nil) {
		return !known
	}
	return p.stamp.size < o.stamp.size
}

// unchecked returns a pack that waits for its check and whose id no pack serves, with a reference,
// or nil.
func (g *generation) unchecked() *Pack {
	for _, id := range g.ids() {
		e := g.packs[id]
		if p := e.unverified(); p != nil && !e.serves() && p.hold() {
			return p
		}
	}
	return nil
}

// verify does the next part of the verification of p, publishes the result and releases p: first
// its check, after which p may serve, and then its hash. known is the row of its file.
func (s *Set) verify(ctx context.Context, p *Pack, known result) {
	defer p.Close()
	defer p.taken.Store(false)
	if r := p.checked.Load(); r != nil {
		s.hash(ctx, p, *r, known)
		return
	}
	r, err := s.check(ctx, p, known)
	if ctx.Err() == nil && (err != nil || len(r.Faults) > 0 && !r.late) {
		s.finish(ctx, p, r, err)
	}
}

// check checks p. If p passes, it serves from then on unless another file does. The report is late
// if the check took too long and the bytes may be those that were found sound before.
func (s *Set) check(ctx context.Context, p *Pack, known result) (r Report, err error) {
	err = guarded(func() (err error) {
		r, err = p.check(ctx)
		return err
	})
	if err != nil {
		return r, err
	}
	r.late = r.late && known.Fault == "" && !known.Digest.IsZero()
	p.checked.Store(&r)
	if len(r.Faults) > 0 {
		return r, nil
	}
	s.update(func(next *generation) {
		if e := next.packs[p.info.ID]; e.pack == p || e.next == p {
			next.packs[p.info.ID] = e.passed(p, r.Info)
		}
	})
	return r, nil
}

// hash hashes p, which has the report r of its check, and publishes the result.
func (s *Set) hash(ctx context.Context, p *Pack, r Report, known result) {
	var d b3.Digest
	err := guarded(func() (err error) {
		d, err = p.hash(ctx, func(int64, int64) {})
		return err
	})
	if ctx.Err() != nil {
		return
	}
	switch {
	case err != nil:
	case !r.late:
		r.Info.verified(d)
	case known.Digest == d:
		r = Report{Info: known.known(p.info)}
	default:
		r.Info.Digest = d
	}
	if known.stamp() == p.stamp {
		r = r.expect(known.Digest)
	}
	s.finish(ctx, p, r, err)
}

// expect returns r with a fault if the digest of the pack differs from d. It returns r unchanged if
// either digest is zero.
func (r Report) expect(d b3.Digest) Report {
	if d.IsZero() || r.Info.Digest.IsZero() || d == r.Info.Digest {
		return r
	}
	fault := fmt.Sprintf("its bytes have changed although size and time have not: the digest is %s, it was %s",
		r.Info.Digest, d)
	return r.with([]string{fault})
}

// finish publishes the result for p and remembers it, unless another file has replaced p. It does
// not remember a read error, because a later read may succeed.
func (s *Set) finish(ctx context.Context, p *Pack, r Report, err error) {
	s.dirty.Store(true)
	s.judge(p, r, err, func(next *generation) {
		if err == nil {
			next.rows[p.info.File] = next.rows[p.info.File].after(p, r.Info)
		}
	})
	s.dirty.Store(true) // another verifier may have remembered the generation before
	s.remember(ctx)
}

// judge publishes the result for p, unless another file has replaced p, together with more changes.
func (s *Set) judge(p *Pack, r Report, err error, more func(next *generation)) {
	fault := r.Info.Fault
	if err != nil {
		fault = valid(err.Error())
	}
	s.update(func(next *generation) {
		e := next.packs[p.info.ID]
		if e.pack != p && e.next != p {
			return
		}
		next.packs[p.info.ID] = e.verified(p, r.Info, fault)
		more(next)
	})
}

// verified returns e after the verification of p, one of its packs. fault is "" if p is sound.
func (e entry) verified(p *Pack, info Info, fault string) entry {
	switch {
	case fault == "" && e.next == p:
		e.pack, e.next = p, nil
		e.info, e.refused = info, stamp{}
	case fault == "":
		info.Next = e.info.Next
		if info.Next == asset.PackFailed {
			info.Fault = e.info.Fault
		}
		e.info = info
	case e.next == p:
		e = e.failed(p.stamp, fault)
	default: // a file that waits to replace the pack may still do so
		e.pack, e.refused = nil, p.stamp
		e.info.State, e.info.Fault, e.info.Checked = asset.PackFailed, fault, false
	}
	return e
}

// Rehash reads every published pack again, at most at edge.packs.scrub_rate, and calls each with
// the result: nil or a Error. A pack fails if its digest has changed, also after a restart. The
// structure of a pack with the same digest needs no check. Rehash has no deadline of its own, skips
// packs that are being opened or verified, and may run concurrently with requests and
// verifications. It blocks while it reads. The error is the cause of ctx.
func (s *Set) Rehash(ctx context.Context, each func(Info, error)) error {
	for _, id := range s.current.Load().ids() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		e := s.current.Load().packs[id]
		switch {
		case e.info.State == asset.PackFailed:
			each(e.info, &Error{ID: id, State: asset.PackFailed, Reason: e.info.Fault})
		case e.info.State == asset.PackVerified && e.pack.hold():
			err := s.rehash(ctx, e)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if now, err2 := s.Info(id); err2 == nil { // else the pack was removed
				each(now, err)
			}
		}
	}
	return nil
}

// rehash reads one pack and releases it.
func (s *Set) rehash(ctx context.Context, e entry) error {
	p := e.pack
	defer p.Close()
	if !p.unchanged() {
		return s.changed(p.info.ID)
	}
	r, began := Report{Info: e.info}, time.Now()
	err := guarded(func() (err error) {
		r.Info.Digest, err = p.hash(ctx, func(done, _ int64) { pace(ctx, began, done, int64(p.env.cfg.ScrubRate)) })
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
		return &Error{ID: p.info.ID, State: asset.PackFailed, Reason: r.Faults[0]}
	}
	s.finish(ctx, p, r, err)
	return &Error{ID: p.info.ID, State: asset.PackFailed, Reason: err.Error()}
}

// pace waits until done bytes may have been read at rate bytes a second since began, or until ctx
// ends.
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
