package seal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/logtree"
	"ronbox/engines/registry/tables"
	"ronbox/engines/registry/views"
	"ronbox/store"
)

// checkpointEvery is the interval at which the checkpointor checks whether HEAD has moved.
const checkpointEvery = time.Second

// maxCheckpoints bounds the queued requests for a checkpoint.
const maxCheckpoints = 8

// Checkpoint is a signed checkpoint. Archived reports whether it is kept for ever.
type Checkpoint struct {
	checkpoint.Signed
	Archived bool
}

// checkpointor is one run of the checkpointor task.
type checkpointor struct {
	sealer     *Sealer
	archived   uint64 // size of the last archived checkpoint
	archivedAt time.Time
	failed     string // the last fault logged
	unsigned   bool   // a missing log key was logged
	set        setGauge
	prunedAt   time.Time // of the last message to the pruner
}

// setGauge decides when the next set of items is stored.
type setGauge struct {
	version uint64 // of the last stored set
	log     int64  // bytes of the log at that time
	bytes   int64  // stored bytes of that set
}

// runCheckpointor signs HEAD within a second of its move, archives checkpoints by time and by
// count, and keeps sets of items for reads of old versions.
func (sl *Sealer) runCheckpointor(ctx context.Context) error {
	defer sl.checkpointTick.Stop()
	sub := sl.deps.Keeper.Committed(TaskCheckpointor) // closed when the pipeline ends
	defer sub.Close()
	c := &checkpointor{sealer: sl, prunedAt: sl.deps.Keeper.Now()}
	if err := c.resume(ctx); err != nil {
		return err
	}
	tick, asked := sl.checkpointTick.C(), sl.checkpointCmd.C()
	for !sub.Closed() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-sub.Ready():
			for _, _, ok := sub.Next(); ok; _, _, ok = sub.Next() {
			}
			if last := sl.deps.Published.Latest.Load(); last == nil ||
				sl.deps.Keeper.Now().Sub(last.At) > checkpointEvery {
				c.report(c.tick(ctx)) // an idle log is covered at once, a busy one every second
			} else if sl.head().Head.Version-c.set.version >= views.MinSetGap &&
				sl.deps.Keeper.Ready() == nil {
				c.report(c.keepSet(ctx))
			}
		case <-tick:
			c.report(c.tick(ctx))
		case r, ok := <-asked:
			if !ok {
				asked = nil
				continue
			}
			if r.Claim() {
				c.answer(ctx, r)
			}
		}
	}
	c.report(c.tick(ctx)) // drained: an orderly stop leaves no version uncovered
	return nil
}

// resume reads the last archived checkpoint and the last stored set.
func (c *checkpointor) resume(ctx context.Context) error {
	return c.sealer.deps.Reader.View(ctx, func(r store.Reader) error {
		if size, _, known := tables.Checkpoints.Last(r); known {
			c.archived = size
		}
		if last := c.sealer.deps.Published.Latest.Load(); last != nil && last.Size == c.archived {
			c.archivedAt = last.At
		}
		if at, head, _, err := tables.KeptSet(r, c.sealer.head().Head.Version); at > 0 && err == nil {
			c.set = setGauge{version: at, bytes: head.Bytes}
		}
		return nil
	})
}

// report logs a fault once and publishes it to readiness.
func (c *checkpointor) report(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	c.sealer.deps.Board.Set(tables.Service, KeyCheckpointor, err)
	if text != "" && text != c.failed {
		c.sealer.deps.Log.Warn("checkpoint.refused", "reason", text)
	}
	c.failed = text
}

// tick stores a set, signs a checkpoint or triggers retention, as each is due.
func (c *checkpointor) tick(ctx context.Context) error {
	sl := c.sealer
	if sl.deps.Store.Info().Restored || sl.guard.Load() != nil || sl.deps.Keeper.Sound() != nil ||
		sl.head().Head.Version == 0 {
		return nil
	}
	if err := c.keepSet(ctx); err != nil || sl.cfg.Copy { // a follower signs nothing and prunes nothing
		return err
	}
	head, last, rule := sl.head().Head.Version, sl.deps.Published.Latest.Load(), sl.deps.Keeper.Rule()
	now, every := sl.deps.Keeper.Now(), rule.Interval
	archive := head > c.archived &&
		(now.Sub(c.archivedAt) >= every || head-c.archived >= rule.EveryVersions)
	if !archive && now.Sub(c.prunedAt) >= every {
		c.prune()
	}
	if last != nil && last.Size == head && now.Sub(last.At) < every && !archive {
		return nil
	}
	_, err := c.sign(ctx, archive)
	if !errors.Is(err, errNoLogKey) {
		c.unsigned = false
		return err
	}
	if missing := sl.HasKey(); missing != nil && !c.unsigned { // else the signers admit no key of this node
		c.unsigned = true
		sl.deps.Log.Warn("checkpoint.unsigned", "reason", missing.Error())
	}
	return nil
}

// keepSet stores the items of HEAD if the versions since the last stored set have more bytes than
// that set.
func (c *checkpointor) keepSet(ctx context.Context) error {
	head, log := c.sealer.head(), c.sealer.deps.Published.Tree.Load().Bytes
	if c.set.log == 0 || c.set.log > log {
		c.set.log = log // versions of an earlier boot are not counted
	}
	gap := head.Head.Version - c.set.version
	if gap < views.MinSetGap || gap < views.MaxSetGap && c.set.version > 0 && log-c.set.log < c.set.bytes {
		return nil
	}
	n, err := c.sealer.deps.Reader.KeepSet(ctx, head.Head.Version, head.Items)
	if err == nil {
		c.set = setGauge{version: head.Head.Version, log: log, bytes: n}
	}
	return err
}

// errNoLogKey is returned if the node has no log key or the signers do not admit it.
var errNoLogKey = errors.New("the signer set in force names no log key of this node")

// sign makes the checkpoint of HEAD. The order is fixed: HEAD is durable, the tree extends the
// last checkpoint and the mark, sign, move the mark, store the checkpoint, publish it. A crash
// between two steps leaves the mark at or above every published checkpoint.
func (c *checkpointor) sign(ctx context.Context, archive bool) (made Checkpoint, err error) {
	sl := c.sealer
	if err := sl.signing.Acquire(ctx); err != nil {
		return Checkpoint{}, err
	}
	defer sl.signing.Release()
	if why := sl.guard.Load(); why != nil {
		return Checkpoint{}, why.Err()
	}
	head := sl.head()
	key, err := sl.Key(head)
	if err != nil {
		return Checkpoint{}, err
	}
	ctx, end := sl.deps.Keeper.Span(ctx, head.Head)
	defer func() { end(err) }()
	next := checkpoint.Tree{Origin: head.Origin, Size: head.Head.Version}
	if next.Root, err = sl.deps.Reader.Root(ctx, next.Size); err != nil {
		return Checkpoint{}, err
	}
	if err := c.extends(ctx, head, next); err != nil {
		return Checkpoint{}, err
	}
	signed, err := key.Sign(next, sl.deps.Keeper.Now())
	if err != nil {
		return Checkpoint{}, err
	}
	if last := sl.deps.Published.Latest.Load(); last != nil && last.Tree == next {
		signed.Note = append(signed.Note, last.Witnessed()...)
	}
	if sl.cfg.Mark.Path != "" {
		if err := sl.cfg.Mark.Write(signed); err != nil {
			return Checkpoint{}, err
		}
	}
	put := tables.PutCheckpoint{Size: next.Size, Note: signed.Note, Archive: archive}
	if _, err := store.Commit(ctx, sl.deps.Store, store.Work, put, func(note []byte) {
		signed.Note = note
		sl.publishCheckpoint(&signed)
	}); err != nil {
		return Checkpoint{}, fmt.Errorf("keep the checkpoint of %d: %w", next.Size, err)
	}
	if archive {
		c.archived, c.archivedAt = next.Size, sl.deps.Keeper.Now()
		c.prune()
		sl.archived.Store(&signed)
	}
	sl.deps.Log.Debug("checkpoint.signed", "version", next.Size, "root", next.Root.String(), "archived", archive)
	sl.checkpointed.Store(Checkpoint{signed, archive})
	return Checkpoint{signed, archive}, nil
}

// prune sends the last archived checkpoint to the pruner.
func (c *checkpointor) prune() {
	c.prunedAt = c.sealer.deps.Keeper.Now()
	if c.archived > 0 {
		c.sealer.deps.Keeper.Prune(c.archived)
	}
}

// extends checks that the tree extends the last checkpoint and the mark. It trips the fork guard
// if it does not.
func (c *checkpointor) extends(ctx context.Context, head *tables.HeadView, next checkpoint.Tree) error {
	last := c.sealer.deps.Published.Latest.Load()
	if last != nil {
		err := c.sealer.deps.Reader.WithTree(ctx,
			func(t logtree.Reader) error { return t.Extends(last.Size, last.Root, next.Size, next.Root) })
		if err != nil {
			c.sealer.Trip(&Rollback{
				Reason: RollbackFork, Mark: last.Tree,
				Detail: "the log does not extend the last checkpoint: " + err.Error(),
			})
			return err
		}
	}
	_, found, err := c.sealer.CheckMark(ctx, head, last != nil)
	if err == nil && found != nil {
		c.sealer.Trip(found)
		err = found.Err()
	}
	return err
}

// publishCheckpoint publishes a synced checkpoint and then a HEAD that names it, in this order, so
// that a named checkpoint can be read. It runs in the committer and must not wait.
func (sl *Sealer) publishCheckpoint(s *checkpoint.Signed) {
	sl.deps.Published.Latest.Store(s)
	sl.deps.Published.State.Store(sl.deps.Published.State.Load().Bounded(0, s.Size))
}

// Key returns the log key of the node. It returns errNoLogKey if the signers in force do not
// admit it. The file is read once.
func (sl *Sealer) Key(head *tables.HeadView) (k *checkpoint.Key, err error) {
	k = sl.key.Load()
	if k == nil && sl.cfg.KeyFile != "" {
		if k, err = checkpoint.ReadKey(sl.cfg.KeyFile); err == nil {
			sl.key.Store(k)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if k == nil || !slices.Contains(head.Signers.LogKeys, k.VKey) || k.Name != head.Origin {
		return nil, errNoLogKey
	}
	return k, nil
}

// HasKey returns an error if the log key is missing. A log without a genesis, or without a log
// key in its signer set, needs none, and neither does a follower.
func (sl *Sealer) HasKey() error {
	head := sl.head()
	if sl.cfg.Copy || sl.cfg.KeyFile == "" || head.Head.Version == 0 || len(head.Signers.LogKeys) == 0 {
		return nil
	}
	_, err := os.Stat(sl.cfg.KeyFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf(
			"the log key %s is missing: no checkpoint is signed without it; put it back from its backup",
			sl.cfg.KeyFile,
		)
	case err != nil:
		return fmt.Errorf("the log key cannot be read: %w", err)
	}
	return nil
}

// answer signs and archives a checkpoint for a request.
func (c *checkpointor) answer(ctx context.Context, r *flow.Reply[Checkpoint]) {
	if err := c.sealer.deps.Keeper.Ready(); err != nil {
		r.Fail(err)
	} else if made, err := c.sign(ctx, true); err != nil {
		r.Fail(err)
	} else {
		r.Answer(made)
	}
}

// CheckpointNow signs and archives HEAD at once. Errors: flow.ErrBusy, *document.NotReadyError,
// document.ErrConflict if the signers admit no log key of this node.
func (sl *Sealer) CheckpointNow(ctx context.Context) (Checkpoint, error) {
	if sl.head().Head.Version == 0 {
		return Checkpoint{}, &document.NotReadyError{Cause: document.CauseNoGenesis}
	}
	r := flow.NewReply[Checkpoint]()
	if err := sl.checkpointCmd.TrySend(r); err != nil {
		return Checkpoint{}, fmt.Errorf("checkpoint: %w", err)
	}
	made, err := r.Wait(ctx)
	if errors.Is(err, errNoLogKey) {
		err = fmt.Errorf("checkpoint: %w: %w", document.ErrConflict, err)
	}
	return made, err
}
