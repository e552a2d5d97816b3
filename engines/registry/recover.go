package registry

import (
	"context"
	"fmt"
	"runtime"

	"ronbox/appliance/flow"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/rverify"
	"ronbox/engines/registry/seal"
	"ronbox/engines/registry/tables"
	"ronbox/engines/registry/views"
	"ronbox/store"
)

// GenesisMismatchError is returned when the configuration names another genesis or another origin
// than the stored log has. The node must not start on it.
type GenesisMismatchError struct{ Key, Want, Has string }

func (e *GenesisMismatchError) Error() string {
	return fmt.Sprintf("%s = %q, but the log in the file has %q", e.Key, e.Want, e.Has)
}

// FollowMismatchError is returned when the configuration and the file disagree about the node that
// is followed. The node must not start on the file.
type FollowMismatchError struct{ Reason string }

func (e *FollowMismatchError) Error() string { return "registry.follow: " + e.Reason }

// Recover verifies the log from its latest checkpoint on, or from genesis if it has none. It
// publishes HEAD and the live proposals, and makes the registry ready for its tasks. The deep
// verifier checks the versions under the checkpoint. Call it once, after the store was opened and
// while its committer runs. It returns store.ErrCorrupt if the log does not verify, and a
// *GenesisMismatchError if the log has another genesis than the pinned one.
func (e *Engine) Recover(ctx context.Context) error {
	if err := e.Open(); err != nil {
		return err
	}
	if err := e.recover(ctx); err != nil {
		e.CloseCache()
		return fmt.Errorf("recover the registry: %w", err)
	}
	return nil
}

func (e *Engine) recover(ctx context.Context) error {
	if err := e.checkFollow(ctx); err != nil {
		return err
	}
	from, signed, err := e.covered(ctx)
	if err != nil {
		return err
	}
	e.pub.Latest.Store(signed)
	e.board.Set(service, views.KeyRows, nil)
	verified, _, err := e.verifyFrom(ctx, from)
	if err != nil {
		return err
	}
	if o := e.boot.Origin; o != "" && verified.Head.Version > 0 && o != verified.Origin {
		return &GenesisMismatchError{Key: "registry.origin", Want: o, Has: verified.Origin}
	}
	// so that load does not replay the log
	known := tables.NewState(&tables.HeadView{Head: verified.Head, Items: verified.Items})
	s, err := e.Load(ctx, known)
	if err != nil {
		return err
	}
	if err := e.checkGenesis(ctx, s.View); err != nil {
		return err
	}
	if err := views.CheckMeta(s.View.Origin, *e.pub.Tree.Load(), verified.Head, verified.Origin); err != nil {
		return err
	}
	e.pub.State.Store(s)
	found, err := e.seal.Check(ctx, s.View)
	if err != nil {
		return err
	}
	if found != nil {
		e.seal.Trip(found)
	}
	e.publishRecovered(s)
	return nil
}

func (e *Engine) publishRecovered(s *tables.State) {
	e.m.signers(s.View.Signers)
	e.told.Store(s.View.Head.Version)
	e.pub.Loaded.Store(true)
	e.board.Set(service, keyHasGenesis, e.hasGenesis())
	e.board.Set(service, seal.KeyForkGuard, e.seal.Tripped().Err())
	if e.chainError.Load() == nil {
		e.board.Set(service, keyChain, nil)
	}
	e.board.Set(service, seal.KeyCheckpointor, nil)
	missing := e.seal.HasKey()
	e.board.Set(service, seal.KeyLogKey, missing)
	if missing != nil {
		e.log.Warn("checkpoint.unsigned", "reason", missing.Error())
	}
	kind := "crash"
	if e.store.Info().Clean {
		kind = "startup"
	}
	e.m.recoveries[kind](1)
	e.log.Info("recovery.done", "version", s.View.Head.Version, "payload_b3", s.View.Head.PayloadB3.String(), "pending",
		len(s.Live), "kind", kind)
}

// recoverSlice is the number of versions that one read transaction of the verification covers.
const recoverSlice = 64

// verifyFrom verifies the log from a state on. It returns the state at the end and the number of
// verified versions.
func (e *Engine) verifyFrom(ctx context.Context, from rverify.State) (rverify.State, uint64, error) {
	v := rverify.Resume(rverify.Options{Fan: flow.Fan, Jobs: runtime.GOMAXPROCS(0)}, from)
	for more, done := true, int64(0); more; done += recoverSlice {
		e.progress("verify the registry", done, 0)
		err := e.store.View(ctx, func(r store.Reader) (err error) {
			more, err = v.Step(ctx, tables.Log{R: r, Codec: e.Codec}, recoverSlice)
			return err
		})
		if problem := v.Problem(); problem != nil {
			e.m.chainErrors(1)
			return rverify.State{}, 0, fmt.Errorf("%w: %w", store.ErrCorrupt, problem)
		}
		if err != nil {
			return rverify.State{}, 0, err
		}
	}
	end, _ := v.State()
	return end, v.Report().Versions, nil
}

// covered returns the state at the latest checkpoint, whose signature, root and last entry it
// checks. Without a checkpoint it returns the beginning of the log.
func (e *Engine) covered(ctx context.Context) (at rverify.State, latest *checkpoint.Signed, err error) {
	var head record.Head
	var note []byte
	err = e.View(ctx, func(r store.Reader) error {
		head, _ = tables.MetaHead.Get(r, tables.KeyHead)
		note, _ = tables.MetaRaw.Get(r, tables.KeyCheckpoint)
		return nil
	})
	if err != nil || note == nil {
		return at, nil, err
	}
	at, signed, err := e.Under(ctx, note, head.Version)
	if err != nil {
		return at, nil, fmt.Errorf("the latest checkpoint: %w", err)
	}
	return at, &signed, nil
}

// checkFollow returns a *FollowMismatchError if the log in the file is that of another node than
// the configured one. It takes up a fault of the hub that was not over at the stop.
func (e *Engine) checkFollow(ctx context.Context) error {
	var head record.Head
	var row tables.FollowRow
	var copied bool
	err := e.View(ctx, func(r store.Reader) error {
		head, _ = tables.MetaHead.Get(r, tables.KeyHead)
		row, copied = tables.MetaFollowed.Get(r, tables.KeyFollowed)
		if kept, bad := tables.MetaFollowFault.Get(r, tables.KeyFollowFault); bad && e.follow != nil {
			e.follow.Restore(&tables.FollowFault{State: kept.State, Detail: kept.Detail})
		}
		return nil
	})
	switch {
	case err != nil || head.Version == 0:
		return err
	case copied && e.follow == nil:
		return &FollowMismatchError{"the log in the file is a copy of that of another node: " +
			"set registry.follow.url and registry.follow.genesis, which is " + row.Genesis.String()}
	case e.follow == nil:
		return nil
	case !copied:
		return &FollowMismatchError{"the log in the file has a genesis of its own, " +
			"so the node cannot follow another one"}
	case row.Genesis != e.follow.Genesis():
		return &FollowMismatchError{fmt.Sprintf("registry.follow.genesis is %s, the log in the file begins with %s",
			e.follow.Genesis(), row.Genesis)}
	}
	return nil
}

// checkGenesis compares version 1 with reg/meta and with the pinned genesis.
func (e *Engine) checkGenesis(ctx context.Context, head *tables.HeadView) error {
	if head.Head.Version == 0 {
		return nil
	}
	first, err := e.PayloadAt(ctx, 1)
	if err != nil {
		return err
	}
	genesis := first.B3()
	if pin := e.boot.Bootstrap.TrustRootsHash; pin != "" && pin != genesis.String() {
		return &GenesisMismatchError{Key: "registry.bootstrap.trust_roots_hash", Want: pin, Has: genesis.String()}
	}
	if head.GenesisB3 != genesis {
		return fmt.Errorf("stored genesis %s, version 1 is %s: %w", head.GenesisB3, genesis, store.ErrCorrupt)
	}
	return nil
}
