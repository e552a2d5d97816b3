package registry

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/registry/checkpoint"
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
	e          *Engine
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
func (e *Engine) runCheckpointor(ctx context.Context) error {
	defer e.checkpointTick.Stop()
	sub := e.committed.Subscribe(taskCheckpointor) // closed when the pipeline ends
	defer sub.Close()
	c := &checkpointor{e: e, prunedAt: e.now()}
	if err := c.resume(ctx); err != nil {
		return err
	}
	tick, asked := e.checkpointTick.C(), e.checkpointCmd.C()
	for !sub.Closed() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-sub.Ready():
			for _, _, ok := sub.Next(); ok; _, _, ok = sub.Next() {
			}
			if last := e.pub.Latest.Load(); last == nil || e.now().Sub(last.At) > checkpointEvery {
				c.report(c.tick(ctx)) // an idle log is covered at once, a busy one every second
			} else if e.Head().Head.Version-c.set.version >= views.MinSetGap && e.ready() == nil {
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
	return c.e.View(ctx, func(r store.Reader) error {
		if size, _, known := tables.Checkpoints.Last(r); known {
			c.archived = size
		}
		if last := c.e.pub.Latest.Load(); last != nil && last.Size == c.archived {
			c.archivedAt = last.At
		}
		if at, head, _, err := tables.KeptSet(r, c.e.Head().Head.Version); at > 0 && err == nil {
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
	c.e.board.Set(service, keyCheckpointor, err)
	if text != "" && text != c.failed {
		c.e.log.Warn("checkpoint.refused", "reason", text)
	}
	c.failed = text
}

// tick stores a set, signs a checkpoint or triggers retention, as each is due.
func (c *checkpointor) tick(ctx context.Context) error {
	e := c.e
	if e.store.Info().Restored || e.guard.Load() != nil || e.chainError.Load() != nil || e.Head().Head.Version == 0 {
		return nil
	}
	if err := c.keepSet(ctx); err != nil || e.follow != nil { // a follower signs nothing and prunes nothing
		return err
	}
	head, last, cfg := e.Head().Head.Version, e.pub.Latest.Load(), e.live()
	now, every := e.now(), cfg.Storage.CheckpointInterval.D()
	archive := head > c.archived &&
		(now.Sub(c.archivedAt) >= every || head-c.archived >= uint64(cfg.Checkpoint.EveryVersions))
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
	if missing := e.hasLogKey(); missing != nil && !c.unsigned { // else the signers admit no key of this node
		c.unsigned = true
		e.log.Warn("checkpoint.unsigned", "reason", missing.Error())
	}
	return nil
}

// keepSet stores the items of HEAD if the versions since the last stored set have more bytes than
// that set.
func (c *checkpointor) keepSet(ctx context.Context) error {
	head, log := c.e.Head(), c.e.pub.Tree.Load().Bytes
	if c.set.log == 0 || c.set.log > log {
		c.set.log = log // versions of an earlier boot are not counted
	}
	gap := head.Head.Version - c.set.version
	if gap < views.MinSetGap || gap < views.MaxSetGap && c.set.version > 0 && log-c.set.log < c.set.bytes {
		return nil
	}
	n, err := c.e.KeepSet(ctx, head.Head.Version, head.Items)
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
	e := c.e
	head := e.Head()
	key, err := e.logKey(head)
	if err != nil {
		return Checkpoint{}, err
	}
	ctx, span := e.span(ctx, "checkpoint", "")
	span.about("", head.Head.Version, head.Head.PayloadB3)
	defer func() { span.end(err) }()
	next := checkpoint.Tree{Origin: head.Origin, Size: head.Head.Version}
	if next.Root, err = e.Root(ctx, next.Size); err != nil {
		return Checkpoint{}, err
	}
	if err := c.extends(ctx, head, next); err != nil {
		return Checkpoint{}, err
	}
	signed, err := key.Sign(next, e.now())
	if err != nil {
		return Checkpoint{}, err
	}
	if last := e.pub.Latest.Load(); last != nil && last.Tree == next {
		signed.Note = append(signed.Note, last.Witnessed()...)
	}
	if e.mark.Path != "" {
		if err := e.mark.Write(signed); err != nil {
			return Checkpoint{}, err
		}
	}
	put := tables.PutCheckpoint{Size: next.Size, Note: signed.Note, Archive: archive}
	if _, err := store.Commit(ctx, e.store, store.Work, put, func(note []byte) {
		signed.Note = note
		e.publishCheckpoint(&signed)
	}); err != nil {
		return Checkpoint{}, fmt.Errorf("keep the checkpoint of %d: %w", next.Size, err)
	}
	if archive {
		c.archived, c.archivedAt = next.Size, e.now()
		c.prune()
		e.archived.Store(&signed)
	}
	e.log.Debug("checkpoint.signed", "version", next.Size, "root", next.Root.String(), "archived", archive)
	e.checkpointed.Store(Checkpoint{signed, archive})
	return Checkpoint{signed, archive}, nil
}

// prune sends the last archived checkpoint to the pruner. If the queue is full, the cycle is
// skipped.
func (c *checkpointor) prune() {
	c.prunedAt = c.e.now()
	if c.archived == 0 || c.e.live().Retention.Policy == RetainAll {
		return
	}
	if err := c.e.retentionCmd.TrySend(c.archived); errors.Is(err, flow.ErrBusy) {
		c.e.m.pruneSkipped[skipQueueFull](1)
		c.e.log.Warn("retention.skipped", "reason", skipQueueFull)
	}
}

// extends checks that the tree extends the last checkpoint and the mark. It trips the fork guard
// if it does not.
func (c *checkpointor) extends(ctx context.Context, head *HeadView, next checkpoint.Tree) error {
	last := c.e.pub.Latest.Load()
	if last != nil {
		err := c.e.WithTree(ctx,
			func(t logtree.Reader) error { return t.Extends(last.Size, last.Root, next.Size, next.Root) })
		if err != nil {
			c.e.trip(&Rollback{
				Reason: RollbackFork, Mark: last.Tree,
				Detail: "the log does not extend the last checkpoint: " + err.Error(),
			})
			return err
		}
	}
	_, found, err := c.e.checkMark(ctx, head, last != nil)
	if err == nil && found != nil {
		c.e.trip(found)
		err = found.err()
	}
	return err
}

// publishCheckpoint publishes a synced checkpoint and then a HEAD that names it, in this order, so
// that a named checkpoint can be read. It runs in the committer and must not wait.
func (e *Engine) publishCheckpoint(s *checkpoint.Signed) {
	e.pub.Latest.Store(s)
	e.pub.State.Store(e.pub.State.Load().Bounded(0, s.Size))
}

// logKey returns the log key of the node. It returns errNoLogKey if the signers in force do not
// admit it. The file is read once.
func (e *Engine) logKey(head *HeadView) (k *checkpoint.Key, err error) {
	k = e.key.Load()
	if k == nil && e.keyFile != "" {
		if k, err = checkpoint.ReadKey(e.keyFile); err == nil {
			e.key.Store(k)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if k == nil || !slices.Contains(head.Signers.LogKeys, k.VKey) || k.Name != head.Origin {
		return nil, errNoLogKey
	}
	return k, nil
}

// answer signs and archives a checkpoint for a request.
func (c *checkpointor) answer(ctx context.Context, r *flow.Reply[Checkpoint]) {
	if err := c.e.ready(); err != nil {
		r.Fail(err)
	} else if made, err := c.sign(ctx, true); err != nil {
		r.Fail(err)
	} else {
		r.Answer(made)
	}
}

// CheckpointNow signs and archives HEAD at once. Errors: flow.ErrBusy, *NotReadyError, ErrConflict
// if the signers admit no log key of this node.
func (e *Engine) CheckpointNow(ctx context.Context) (Checkpoint, error) {
	if err := e.Follows(); err != nil {
		return Checkpoint{}, err
	}
	if e.Head().Head.Version == 0 {
		return Checkpoint{}, &NotReadyError{Cause: CauseNoGenesis}
	}
	r := flow.NewReply[Checkpoint]()
	if err := e.checkpointCmd.TrySend(r); err != nil {
		return Checkpoint{}, fmt.Errorf("checkpoint: %w", err)
	}
	made, err := r.Wait(ctx)
	if errors.Is(err, errNoLogKey) {
		err = fmt.Errorf("checkpoint: %w: %w", ErrConflict, err)
	}
	return made, err
}
