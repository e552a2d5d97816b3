package edge

import (
	"context"
	"errors"
	"fmt"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
)

// Tasks of the packs.
const (
	taskScanner  = "pack_scanner"
	taskOpener   = "pack_opener"
	taskVerifier = "verifier"
)

const (
	verifyQueue = 32
	verifiers   = 2 // one pack that is slow to verify leaves one to the others
)

// Tasks lists the tasks of the packs.
func (s *PackSet) Tasks() []flow.Task {
	return []flow.Task{
		{Service: service, Name: taskScanner, Restart: flow.Always, Background: true,
			Doc: "lists the folder of packs", Run: s.runScanner},
		{Service: service, Name: taskOpener, Restart: flow.Always, Background: true,
			Doc: "opens packs, each for edge.packs.statement_timeout at most", Run: s.runOpener},
		{Service: service, Name: taskVerifier, Count: verifiers, Restart: flow.Always, Background: true, Lanes: []string{"store.work"},
			Doc: "verifies and replaces packs, one at a time", Run: s.runVerifier},
	}
}

// Recover reads what is remembered and lists the folder. It opens no file of a pack: tiles wait for
// the opener. A bad row is dropped, and so the packs are verified anew; a folder that cannot be
// read is logged: a node starts without it.
func (s *PackSet) Recover(ctx context.Context) error {
	rows, err := s.recall(ctx)
	if err = errors.Join(err, s.leaves.Open(), s.tiles.Open()); err != nil {
		return fmt.Errorf("packs: %w", err)
	}
	s.current.Store(&generation{rows: rows})
	_ = s.scan(false) // it is logged
	return nil
}

// runVerifier verifies packs.
func (s *PackSet) runVerifier(ctx context.Context) error {
	return s.follow(ctx, func(g *generation) bool {
		p := g.take()
		if p != nil {
			s.verify(ctx, p, g.rows[p.info.File])
		}
		return p != nil
	})
}

// take returns the smallest pack that is not verified and that no other caller has, held for the
// caller; nil if there is none.
func (g *generation) take() *Pack {
	for {
		var first *Pack
		for _, e := range g.packs {
			p := e.unverified()
			if p != nil && !p.taken.Load() && (first == nil || p.stamp.size < first.stamp.size) {
				first = p
			}
		}
		switch {
		case first == nil || !first.hold():
			return nil // or g is not current any more
		case first.taken.CompareAndSwap(false, true):
			return first
		}
		first.Close()
	}
}

// verify verifies p, which it lets go, and publishes the outcome. known is the row of its file.
func (s *PackSet) verify(ctx context.Context, p *Pack, known packRow) {
	defer p.Close()
	defer p.taken.Store(false)
	var r PackReport
	err := guarded(func() (err error) {
		r, err = p.verify(ctx, func(int64, int64) {})
		return err
	})
	if ctx.Err() != nil {
		return
	}
	if known.stamp() == p.stamp {
		r = r.expect(known.Digest)
	}
	s.finish(ctx, p, r, err)
}

// expect returns r with a fault unless its pack has a digest that was seen before. The zero digest
// was not.
func (r PackReport) expect(d b3.Digest) PackReport {
	if d.IsZero() || r.Info.Digest.IsZero() || d == r.Info.Digest {
		return r
	}
	return r.with([]string{fmt.Sprintf("its bytes have changed under the same size and time: the digest is %s, it was %s", r.Info.Digest, d)})
}

// finish publishes the outcome for p and remembers it, unless another file has taken its place
// meanwhile. An error of reading is not remembered: the disk may do better.
func (s *PackSet) finish(ctx context.Context, p *Pack, r PackReport, err error) {
	fault := r.Info.Fault
	if err != nil {
		fault = err.Error()
	}
	s.dirty.Store(true)
	s.update(func(next *generation) {
		e := next.packs[p.info.ID]
		if e.pack != p && e.next != p {
			return
		}
		next.packs[p.info.ID] = e.verified(p, r.Info, fault)
		if err == nil {
			next.rows[p.info.File] = next.rows[p.info.File].after(p, r.Info)
		}
	})
	s.remember(ctx)
}

// verified returns e after the verification of p, one of its packs. fault is empty if it is sound.
func (e packEntry) verified(p *Pack, info PackInfo, fault string) packEntry {
	switch {
	case fault == "" && e.next == p:
		e.pack, e.next, e.info, e.refused = p, nil, info, stamp{}
	case fault == "":
		info.Next = e.info.Next
		if info.Next == PackFailed {
			info.Fault = e.info.Fault
		}
		e.info = info
	case e.next == p:
		e = e.failed(p.stamp, fault)
	default: // a file that is to take its place still may
		e.pack, e.refused = nil, p.stamp
		e.info.State, e.info.Fault = PackFailed, fault
	}
	return e
}
