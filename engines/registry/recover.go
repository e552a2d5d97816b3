package registry

import (
	"context"
	"fmt"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/registry/rverify"
	"ronbox/store"
)

// Recover reads the log, verifies it from genesis on, publishes HEAD and the live proposals, and makes the registry ready
// for its tasks. Call it once, after the store was opened and its committer runs. A log that does not verify is
// store.ErrCorrupt, one that begins with another genesis than the pinned one a *GenesisMismatchError.
func (e *Engine) Recover(ctx context.Context) error {
	c, err := newCache()
	if err != nil {
		return err
	}
	if old := e.cache.Swap(c); old != nil {
		old.close()
	}
	if err := e.recover(ctx); err != nil {
		e.Close()
		return fmt.Errorf("recover the registry: %w", err)
	}
	return nil
}

func (e *Engine) recover(ctx context.Context) error {
	verified, err := e.verifyAll(ctx)
	if err != nil {
		return err
	}
	if o := e.boot.Origin; o != "" && verified.Head.Version > 0 && o != verified.Origin {
		return &GenesisMismatchError{Key: "registry.origin", Want: o, Has: verified.Origin}
	}
	genesis, err := e.pinnedGenesis(ctx)
	if err != nil {
		return err
	}
	bytes, err := e.countBytes(ctx)
	if err != nil {
		return err
	}
	known := newState(&HeadView{Head: verified.Head, Items: verified.Items}) // so that load need not replay the log
	known.logBytes = bytes
	s, err := e.load(ctx, known)
	if err != nil {
		return err
	}
	if s.view.genesis != genesis {
		return fmt.Errorf("stored genesis %s, version 1 is %s: %w", s.view.genesis, genesis, store.ErrCorrupt)
	}
	e.publishRecovered(s)
	return nil
}

func (e *Engine) publishRecovered(s *state) {
	e.current.Store(s)
	e.m.signers(s.view.Signers)
	e.verifiedTo.Store(s.view.Head.Version)
	e.loaded.Store(true)
	e.board.Set(service, keyHasGenesis, e.hasGenesis())
	kind := "crash"
	if e.store.Info().Clean {
		kind = "startup"
	}
	e.m.recoveries[kind](1)
	e.log.Info("recovery.done", "version", s.view.Head.Version, "payload_b3", s.view.Head.PayloadB3.String(), "pending", len(s.live), "kind", kind)
}

// recoverSlice is how many versions one read transaction of the boot's verification covers.
const recoverSlice = 64

// verifyAll verifies the whole log and answers where it ends.
func (e *Engine) verifyAll(ctx context.Context) (rverify.State, error) {
	v := rverify.New(rverify.Options{Fan: flow.Fan, Jobs: cap(e.slots)})
	for more, done := true, int64(0); more; done += recoverSlice {
		e.progress("verify the registry", done, 0)
		err := e.store.View(ctx, func(r store.Reader) (err error) {
			more, err = v.Step(ctx, logReader{r: r, codec: e.codec}, recoverSlice)
			return err
		})
		if problem := v.Problem(); problem != nil {
			e.m.chainErrors(1)
			return rverify.State{}, fmt.Errorf("%w: %w", store.ErrCorrupt, problem)
		}
		if err != nil {
			return rverify.State{}, err
		}
	}
	end, _ := v.State()
	return end, nil
}

// pinnedGenesis gives the payload_b3 of version 1, zero for an empty log, and refuses one that the configuration does not
// pin.
func (e *Engine) pinnedGenesis(ctx context.Context) (b3.Digest, error) {
	var packed []byte
	err := e.view(ctx, func(r store.Reader) error {
		packed, _ = payloads.Get(r, 1)
		return nil
	})
	if err != nil || packed == nil {
		return b3.Digest{}, err
	}
	raw, err := e.codec.unpack(packed)
	if err != nil {
		return b3.Digest{}, err
	}
	genesis := b3.Sum(raw)
	if pin := e.boot.Bootstrap.TrustRootsHash; pin != "" && pin != genesis.String() {
		return b3.Digest{}, &GenesisMismatchError{Key: "registry.bootstrap.trust_roots_hash", Want: pin, Has: genesis.String()}
	}
	return genesis, nil
}

// countBytes sums up the stored log.
func (e *Engine) countBytes(ctx context.Context) (int64, error) {
	var n int64
	err := e.view(ctx, func(r store.Reader) error {
		n = 0
		for _, b := range []*store.Bucket{bEntry, bPayload} {
			for _, v := range r.Range(b, nil, nil) {
				n += int64(len(v))
			}
		}
		return nil
	})
	return n, err
}
