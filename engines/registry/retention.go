package registry

import (
	"context"
	"fmt"
	"sort"
	"time"

	"github.com/oklog/ulid/v2"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// Policies of retention.
const (
	RetainAll     = "none"     // no version is deleted
	RetainByAge   = "by-age"   // delete segments whose last version is older than max_age
	RetainByCount = "by-count" // delete versions before the newest max_count
)

// segmentVersions is the number of versions of a segment: as many as a tile has, so that an export
// omits whole files.
const segmentVersions = 256

// Reasons to skip a cycle of retention.
const (
	skipQueueFull = "queue_full"
	skipNotReady  = "not_ready" // the registry takes no writes
	skipNoKey     = "no_key"    // the signers admit no log key of this node, which would sign the statement
	// the last archived checkpoint is missing or not signed by a log key in force
	skipNoCheckpoint = "no_checkpoint"
	keepPolicy       = "policy_none"
	keepNotDue       = "not_due" // the policy or the checkpoint covers no further segment
)

// Retention returns the plan of the next cycle of retention.
func (e *Engine) Retention(ctx context.Context) (RetentionPlan, error) {
	p, _, err := e.planRetention(ctx)
	return p, err
}

// planRetention returns the plan, and the checkpoint that covers it.
func (e *Engine) planRetention(ctx context.Context) (p RetentionPlan, over checkpoint.Signed, err error) {
	cfg, head := e.live().Retention, e.Head()
	p = RetentionPlan{Policy: cfg.Policy, MinVersion: head.MinVersion, Next: head.MinVersion}
	if cfg.Policy == RetainAll {
		p.Reason = keepPolicy
		return p, over, nil
	}
	if over, p.Reason, err = e.coverOf(ctx, head); err != nil || p.Reason != "" {
		return p, over, err
	}
	p.Checkpoint = over.Size
	end := min(over.Size-1, less(head.Head.Version, e.segment)) // the last version that may be removed
	if cfg.Policy == RetainByCount {
		end = min(end, less(head.Head.Version, uint64(cfg.MaxCount)))
	}
	segments := end / e.segment
	if cfg.Policy == RetainByAge {
		if segments, err = e.olderSegments(ctx, (head.MinVersion-1)/e.segment, segments,
			e.now().Add(-cfg.MaxAge.D())); err != nil {
			return p, over, err
		}
	}
	if next := segments*e.segment + 1; next > p.MinVersion {
		p.Next = next
		return p, over, e.countGoing(ctx, &p)
	}
	p.Reason = keepNotDue
	return p, over, nil
}

// less returns a - b, at least 0.
func less(a, b uint64) uint64 { return a - min(a, b) }

// coverOf returns the last archived checkpoint, which a log key in force must have signed and the
// tree must confirm, or the reason to keep everything.
func (e *Engine) coverOf(ctx context.Context, head *HeadView) (over checkpoint.Signed, reason string, err error) {
	if e.store.Info().Restored || e.ready() != nil || head.Head.Version == 0 {
		return over, skipNotReady, nil
	}
	if _, err := e.logKey(head); err != nil {
		return over, skipNoKey, nil
	}
	var note []byte
	err = e.View(ctx, func(r store.Reader) error {
		_, note, _ = tables.Checkpoints.Last(r)
		return nil
	})
	if err != nil {
		return over, "", err
	}
	keys, err := checkpoint.NewKeys(head.Signers.LogKeys)
	if err != nil {
		return over, "", err
	}
	if over, err = keys.Open(note); err != nil || over.Origin != head.Origin || over.Size > head.Head.Version {
		return over, skipNoCheckpoint, nil
	}
	if root, err := e.Root(ctx, over.Size); err != nil || root != over.Root {
		return over, skipNoCheckpoint, err
	}
	return over, "", nil
}

// olderSegments returns the number of leading segments whose last version is older than a time.
// The times of versions never decrease.
func (e *Engine) olderSegments(ctx context.Context, from, to uint64, over time.Time) (n uint64, err error) {
	if to <= from {
		return from, nil
	}
	more := sort.Search(int(to-from), func(i int) bool {
		entry, readErr := e.EntryAt(ctx, (from+uint64(i)+1)*e.segment)
		if readErr != nil {
			err = readErr
			return true
		}
		at, timeErr := record.ParseTime(entry.CommittedAt)
		return timeErr != nil || !at.Before(over)
	})
	return from + uint64(more), err
}

// countGoing counts the versions that a plan removes.
func (e *Engine) countGoing(ctx context.Context, p *RetentionPlan) error {
	return e.View(ctx, func(r store.Reader) error {
		p.Versions = p.Next - p.MinVersion
		for v := range tables.KeptVersions(r) {
			if v >= p.MinVersion && v < p.Next {
				p.Versions--
			}
		}
		return nil
	})
}

// statement returns the statement of a plan. It names the items of the first version kept, which
// it reads back from the file.
func (e *Engine) statement(ctx context.Context, p RetentionPlan,
	over checkpoint.Signed) (said checkpoint.Retention, audit uint64, err error) {
	last, err := e.EntryAt(ctx, p.Next-1)
	if err != nil {
		return said, 0, err
	}
	top, err := e.EntryAt(ctx, over.Size)
	if err != nil {
		return said, 0, err
	}
	payload, err := e.PayloadAt(ctx, p.Next)
	if err != nil {
		return said, 0, err
	}
	items, err := e.Kept(ctx, p.Next)
	if err == nil {
		err = payload.CheckItems(items)
	}
	if err != nil {
		return said, 0, fmt.Errorf("kept items of version %d: %w", p.Next, err)
	}
	return checkpoint.Retention{
		Tree: over.Tree, Head: top.Hash(), Min: p.Next, ItemsRoot: payload.ItemsRoot,
		Snapshot: b3.Sum(items.Snapshot()),
	}, last.AuditSeq + 1, nil
}

// Bounds of the sweep of outcomes.
const (
	maxForget   = 256  // removed in one tick
	forgetSlice = 2048 // read in one tick
	forgetEvery = time.Hour
)

// forgetter reads reg/done in passes for outcomes that are old enough to remove. Ids begin with
// the time of their proposal, so a pass ends at the ids of KeepOutcomes ago. An outcome that a
// batch fails to remove is found in the next pass.
type forgetter struct {
	at   ulid.ULID // next id of the pass; zero: the first
	rest time.Time // the next pass does not begin before
}

// idle reports whether the next pass is not due yet.
func (f forgetter) idle(now time.Time) bool { return now.Before(f.rest) }

// look continues the pass. It returns the outcomes to remove and the state after it.
func (f forgetter) look(r store.Reader, now time.Time) (due []ulid.ULID, then forgetter) {
	over := now.Add(-tables.KeepOutcomes).UnixMilli()
	var bound ulid.ULID
	if err := bound.SetTime(uint64(max(over, 0))); err != nil {
		panic("registry: the clock is past the year 10000: " + err.Error())
	}
	seen := 0
	for id, how := range tables.DoneOutcome.Range(r, f.at, bound) {
		if seen++; seen > forgetSlice || len(due) == maxForget {
			return due, forgetter{at: id}
		}
		if how.State != StateCommitted && how.AtMS <= over {
			due = append(due, id)
		}
	}
	return due, forgetter{rest: now.Add(forgetEvery)}
}

// outcomesOver returns the outcomes that this tick removes.
func (p *pipeline) outcomesOver(ctx context.Context) (due []ulid.ULID, err error) {
	now := p.clock()
	if p.forgetter.idle(now) {
		return nil, nil
	}
	var then forgetter
	err = p.e.View(ctx, func(r store.Reader) error {
		due, then = p.forgetter.look(r, now)
		return nil
	})
	if err == nil {
		p.forgetter = then
	}
	return due, err
}

// forget adds the removal of outcomes, under one audit record.
func (p *plan) forget(ids []ulid.ULID) {
	if len(ids) > 0 {
		op := tables.ForgetOp{IDs: ids, OverMS: p.now.Add(-tables.KeepOutcomes).UnixMilli()}
		p.add(nil, op, record.Audit{Event: tables.EventForgotten})
	}
}
