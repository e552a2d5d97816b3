package retain

import (
	"context"
	"fmt"
	"sort"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// Policies of retention.
const (
	All     = "none"     // no version is deleted
	ByAge   = "by-age"   // delete segments whose last version is older than max_age
	ByCount = "by-count" // delete versions before the newest max_count
)

// SegmentVersions is the number of versions of a segment: as many as a tile has, so that an export
// omits whole files.
const SegmentVersions = 256

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

// Plan returns the plan of the next cycle, and the checkpoint that covers it.
func (rt *Retainer) Plan(ctx context.Context) (p document.RetentionPlan, over checkpoint.Signed, err error) {
	policy, head := rt.deps.Keeper.Policy(), rt.head()
	p = document.RetentionPlan{Policy: policy.Name, MinVersion: head.MinVersion, Next: head.MinVersion}
	if policy.Name == All {
		p.Reason = keepPolicy
		return p, over, nil
	}
	if over, p.Reason, err = rt.coverOf(ctx, head); err != nil || p.Reason != "" {
		return p, over, err
	}
	p.Checkpoint = over.Size
	end := min(over.Size-1, less(head.Head.Version, rt.segment)) // the last version that may be removed
	if policy.Name == ByCount {
		end = min(end, less(head.Head.Version, policy.MaxCount))
	}
	segments := end / rt.segment
	if policy.Name == ByAge {
		if segments, err = rt.olderSegments(ctx, (head.MinVersion-1)/rt.segment, segments,
			rt.deps.Keeper.Now().Add(-policy.MaxAge)); err != nil {
			return p, over, err
		}
	}
	if next := segments*rt.segment + 1; next > p.MinVersion {
		p.Next = next
		return p, over, rt.countGoing(ctx, &p)
	}
	p.Reason = keepNotDue
	return p, over, nil
}

// less returns a - b, at least 0.
func less(a, b uint64) uint64 { return a - min(a, b) }

// coverOf returns the last archived checkpoint, which a log key in force must have signed and the
// tree must confirm, or the reason to keep everything.
func (rt *Retainer) coverOf(ctx context.Context,
	head *tables.HeadView) (over checkpoint.Signed, reason string, err error) {
	if rt.deps.Store.Info().Restored || rt.deps.Keeper.Ready() != nil || head.Head.Version == 0 {
		return over, skipNotReady, nil
	}
	if _, err := rt.deps.Keeper.Key(head); err != nil {
		return over, skipNoKey, nil
	}
	var note []byte
	err = rt.deps.Reader.View(ctx, func(r store.Reader) error {
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
	if root, err := rt.deps.Reader.Root(ctx, over.Size); err != nil || root != over.Root {
		return over, skipNoCheckpoint, err
	}
	return over, "", nil
}

// olderSegments returns the number of leading segments whose last version is older than a time.
// The times of versions never decrease.
func (rt *Retainer) olderSegments(ctx context.Context, from, to uint64, over time.Time) (n uint64, err error) {
	if to <= from {
		return from, nil
	}
	more := sort.Search(int(to-from), func(i int) bool {
		entry, readErr := rt.deps.Reader.EntryAt(ctx, (from+uint64(i)+1)*rt.segment)
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
func (rt *Retainer) countGoing(ctx context.Context, p *document.RetentionPlan) error {
	return rt.deps.Reader.View(ctx, func(r store.Reader) error {
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
func (rt *Retainer) statement(ctx context.Context, p document.RetentionPlan,
	over checkpoint.Signed) (said checkpoint.Retention, audit uint64, err error) {
	last, err := rt.deps.Reader.EntryAt(ctx, p.Next-1)
	if err != nil {
		return said, 0, err
	}
	top, err := rt.deps.Reader.EntryAt(ctx, over.Size)
	if err != nil {
		return said, 0, err
	}
	payload, err := rt.deps.Reader.PayloadAt(ctx, p.Next)
	if err != nil {
		return said, 0, err
	}
	items, err := rt.deps.Reader.Kept(ctx, p.Next)
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
