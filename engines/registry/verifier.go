package registry

import (
	"context"
	"errors"
	"time"

	"ronbox/engines/registry/rverify"
	"ronbox/store"
)

// sliceVersions is how many versions one slice verifies at most.
const sliceVersions = 64

// runVerifier verifies the log from genesis on in slices, follows what is committed, and begins anew when a pass is
// verify.full_pass old. A fault latches chain_error: no write is taken until a boot has looked at the file.
func (e *Engine) runVerifier(ctx context.Context) error {
	sub := e.committed.Subscribe(taskVerifier)
	defer sub.Close()
	defer e.verifyTick.Stop()
	tick := e.verifyTick.C()
	pass := e.newPass()
	for !sub.Closed() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-sub.Ready():
			for _, _, ok := sub.Next(); ok; _, _, ok = sub.Next() {
				pass.behind = true // what was lost to lag is read from the file all the same
			}
		case <-tick:
			if e.chainError.Load() != nil {
				continue // to return would be to ask for a restart
			}
			if e.now().Sub(pass.begun) >= e.live().Verify.FullPass.D() {
				pass = e.newPass()
			}
			if err := e.verifySlice(ctx, pass); err != nil {
				return err
			}
		}
	}
	return nil // drained
}

// pass is one verification of the log, from genesis to wherever HEAD is.
type pass struct {
	v      *rverify.Verifier
	begun  time.Time
	behind bool // there is more to verify
}

func (e *Engine) newPass() *pass {
	return &pass{v: rverify.New(rverify.Options{Genesis: e.Head().genesis}), begun: e.now(), behind: true}
}

// verifySlice spends one slice on the pass, in one read transaction.
func (e *Engine) verifySlice(ctx context.Context, p *pass) error {
	if !p.behind || e.Head().Head.Version == 0 {
		return nil
	}
	begun := time.Now()
	err := e.store.View(ctx, func(r store.Reader) error {
		log := logReader{r: r, codec: e.codec}
		for n := 0; n < sliceVersions && time.Since(begun) < e.live().Verify.Slice.D(); n++ {
			more, err := p.v.Step(ctx, log, 1)
			if err != nil {
				return err
			}
			if p.behind = more; !more {
				return nil
			}
		}
		return nil
	})
	e.m.auditSeconds(time.Since(begun).Seconds())
	e.verifiedTo.Store(p.v.Report().Head.Version)
	var problem *rverify.Problem
	if errors.As(err, &problem) || errors.Is(err, store.ErrCorrupt) {
		e.latch(err)
		return nil
	}
	return err
}

// latch stops all writes: the log in the file is not the one that was signed.
func (e *Engine) latch(fault error) {
	text := fault.Error()
	e.chainError.Store(&text)
	e.m.chainErrors(1)
	e.log.Error("verify.mismatch", "reason", text)
	e.board.Set(service, keyChain, &NotReadyError{Cause: CauseChainError})
}
