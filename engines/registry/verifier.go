package registry

import (
	"context"
	"errors"
	"time"

	"ronbox/engines/registry/document"
	"ronbox/engines/registry/rverify"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

const (
	// sliceVersions is the most versions that one slice verifies.
	sliceVersions = 64
	// markEvery is the least time between two stored marks of a pass. A restart repeats at most
	// this much work, plus the versions after the checkpoint.
	markEvery = 10 * time.Second
)

// runVerifier verifies the log in slices and follows the commits. After a restart it continues from
// the last stored checkpoint. Once a pass has reached the HEAD at its beginning and
// verify.full_pass has elapsed, the next pass begins at genesis. A fault latches chain_error: the
// registry takes no writes until the next boot has verified the file. Between passes it looks once
// a second.
func (e *Engine) runVerifier(ctx context.Context) error {
	sub := e.committed.Subscribe(taskVerifier)
	defer sub.Close()
	defer e.verifyTick.Stop()
	tick := e.verifyTick.C()
	pass := e.resumePass(ctx)
	for !sub.Closed() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-sub.Ready():
			for _, _, ok := sub.Next(); ok; _, _, ok = sub.Next() {
				pass.behind = true // events lost to lag are read from the file
			}
			e.verifyTick.Wake()
		case <-tick:
			if e.chainError.Load() != nil {
				e.verifyTick.Rest()
				continue // an error would restart the task
			}
			if pass.over(e.now(), e.live().Verify.FullPass.D()) {
				pass = e.newPass(rverify.State{}, e.now())
			}
			if err := e.verifySlice(ctx, pass); err != nil {
				return err
			}
			e.markVerified(ctx, pass)
			if pass.behind {
				e.verifyTick.Wake()
			} else {
				e.verifyTick.Rest()
			}
		}
	}
	return nil // drained
}

// pass is one verification of the log from genesis to HEAD.
type pass struct {
	v        *rverify.Verifier
	begun    time.Time
	until    uint64    // version of HEAD when the pass began or was resumed
	behind   bool      // HEAD is ahead of the pass
	marked   uint64    // size of the stored mark
	markedAt time.Time // when a mark was last looked for
}

func (p *pass) reached() uint64 { return p.v.Report().Head.Version }

// over reports whether the next pass is due. A slow pass is not cut short, else the end of the log
// would never be verified.
func (p *pass) over(now time.Time, every time.Duration) bool {
	return p.reached() >= p.until && now.Sub(p.begun) >= every
}

func (e *Engine) newPass(from rverify.State, begun time.Time) *pass {
	head := e.Head()
	p := &pass{
		v: rverify.Resume(rverify.Options{Genesis: head.GenesisB3}, from), begun: begun,
		until: head.Head.Version, behind: true,
	}
	p.marked = from.Head.Version
	p.markedAt = e.now()
	e.verifiedTo.Store(p.marked)
	return p
}

// resumePass continues the pass that the file records. If there is none, or the log does not verify
// at its checkpoint, the pass begins at genesis, where a fault is found with its reason.
func (e *Engine) resumePass(ctx context.Context) *pass {
	var mark tables.VerifyMark
	var note []byte
	err := e.View(ctx, func(r store.Reader) error {
		mark, _ = tables.MetaVerified.Get(r, tables.KeyVerified)
		note, _ = tables.Checkpoints.Get(r, mark.Size)
		return nil
	})
	if err == nil && note == nil {
		return e.newPass(rverify.State{}, e.now())
	}
	var from rverify.State
	if err == nil {
		from, _, err = e.Under(ctx, note, e.Head().Head.Version)
	}
	if err != nil {
		if ctx.Err() == nil {
			e.log.Warn("verify.restarted", "version", mark.Size, "reason", err.Error())
		}
		return e.newPass(rverify.State{}, e.now())
	}
	begun := e.now()
	if kept := time.UnixMilli(mark.BegunMS); kept.Before(begun) { // else the clock was set back
		begun = kept
	}
	return e.newPass(from, begun)
}

// markVerified stores the last archived checkpoint that the pass has verified. It is not urgent: if
// the store refuses, it is tried again later.
func (e *Engine) markVerified(ctx context.Context, p *pass) {
	_, whole := p.v.State()
	if !whole || p.reached() <= p.marked || e.now().Sub(p.markedAt) < markEvery || e.seal.Tripped() != nil {
		return
	}
	p.markedAt = e.now()
	var size uint64
	err := e.View(ctx, func(r store.Reader) error {
		size = 0
		for at := range tables.Checkpoints.Back(r, 0, p.reached()+1) {
			size = at
			break
		}
		return nil
	})
	if err == nil && size > p.marked {
		_, err = store.TryCommit(ctx, e.store, store.Bulk,
			tables.MarkVerified{Mark: tables.VerifyMark{Size: size, BegunMS: p.begun.UnixMilli()}})
		if err == nil {
			p.marked = size
		}
	}
	if err != nil && ctx.Err() == nil {
		e.log.Debug("verify.unmarked", "version", size, "reason", err.Error())
	}
}

// verifySlice spends one slice on the pass, in one read transaction.
func (e *Engine) verifySlice(ctx context.Context, p *pass) error {
	if !p.behind || e.Head().Head.Version == 0 {
		return nil
	}
	begun := time.Now()
	err := e.store.View(ctx, func(r store.Reader) error {
		log := tables.Log{R: r, Codec: e.Codec}
		for n := 0; n < sliceVersions && time.Since(begun) < e.live().Verify.Slice.D(); n++ {
			more, err := p.v.Step(ctx, log, 1)
			if err != nil {
				return err
			}
			p.behind = more
			if !more {
				return nil
			}
		}
		return nil
	})
	e.m.auditSeconds(time.Since(begun).Seconds())
	e.verifiedTo.Store(p.reached())
	var problem *rverify.Problem
	if errors.As(err, &problem) || errors.Is(err, store.ErrCorrupt) {
		e.latch(err)
		return nil
	}
	return err
}

// latch stops all writes, because the stored log is not the signed one.
func (e *Engine) latch(fault error) {
	text := fault.Error()
	e.chainError.Store(&text)
	e.m.chainErrors(1)
	e.log.Error("verify.mismatch", "reason", text)
	e.board.Set(service, keyChain, &document.NotReadyError{Cause: document.CauseChainError})
}
