package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"ronbox/appliance/flow"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/record"
	"ronbox/store"
)

// Bounds of the pruner.
const (
	maxRetentionCmds = 8                     // queued cycles; each handles what the cycles before it have left
	maxPruneKeys     = 256                   // rows that one command removes
	maxPruneBytes    = 1 << 20               // bytes of these rows, unless one version has more
	prunePause       = 50 * time.Millisecond // between commands, so that they do not keep the committer busy
)

// PutRetention stores a statement of retention. From then on versions before Min are pruned and may
// be deleted.
type PutRetention struct {
	Min     uint64 `cbor:"1,keyasint"`
	Audit   uint64 `cbor:"2,keyasint"` // the oldest audit record kept
	Size    uint64 `cbor:"3,keyasint"` // of the archived checkpoint
	Segment uint64 `cbor:"4,keyasint"` // versions of a segment
	Note    []byte `cbor:"5,keyasint"`
}

// Kind returns the stable name of the command.
func (PutRetention) Kind() string { return "registry.put_retention/1" }

// Apply returns a *GuardError if the versions are not covered, not whole segments or too near to
// HEAD, or if the items of version Min are not stored.
func (c PutRetention) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	head, _ := metaHead.Get(r, keyHead)
	first, _ := metaNumber.Get(r, keyMin)
	guard := ""
	switch {
	case c.Min <= first || c.Segment == 0 || (c.Min-1)%c.Segment != 0:
		guard = "segment"
	case c.Min-1+c.Segment > head.Version:
		guard = "head"
	case c.Size < c.Min || !checkpoints.Has(r, c.Size):
		guard = "checkpoint"
	case !setHeaders.Has(r, setKey{c.Min, 0}) || !entries.Has(r, c.Min) || !audits.Has(r, c.Audit):
		guard = "snapshot"
	}
	if guard != "" {
		return struct{}{}, &GuardError{Op: -1, Guard: guard}
	}
	retentions.Delete(w, first) // the new statement replaces the one before
	retentions.Put(w, c.Min, c.Note)
	metaNumber.Put(w, keyMin, c.Min)
	metaNumber.Put(w, keyAuditMin, c.Audit)
	return struct{}{}, nil
}

// PruneSlice removes some of the rows that a statement of retention lets go: versions with the
// outcomes of their proposals, rows of stored sets, and audit records with the outcomes that only
// they record.
type PruneSlice struct {
	Versions []prunedVersion `cbor:"1,keyasint,omitempty"`
	Bytes    int64           `cbor:"2,keyasint,omitempty"` // of the entries and payloads
	Sets     []setKey        `cbor:"3,keyasint,omitempty"`
	Audits   []uint64        `cbor:"4,keyasint,omitempty"`
	Outcomes []ulid.ULID     `cbor:"5,keyasint,omitempty"` // of proposals that ended without a version
}

// keys returns the number of rows that c removes.
func (c PruneSlice) keys() int {
	return 3*len(c.Versions) + len(c.Sets) + len(c.Audits) + len(c.Outcomes)
}

type prunedVersion struct {
	Version  uint64    `cbor:"1,keyasint"`
	Proposal ulid.ULID `cbor:"2,keyasint"`
}

// Kind returns the stable name of the command.
func (PruneSlice) Kind() string { return "registry.prune_slice/1" }

// Apply returns a *GuardError if no statement covers a row.
func (c PruneSlice) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (treeRow, error) {
	tree, _ := metaTree.Get(r, keyTree)
	first, _ := metaNumber.Get(r, keyMin)
	audit, _ := metaNumber.Get(r, keyAuditMin)
	kept, refused := keptVersions(r), !retentions.Has(r, first)
	for _, v := range c.Versions {
		refused = refused || v.Version >= first || kept[v.Version]
		entries.Delete(w, v.Version)
		payloads.Delete(w, v.Version)
		doneOutcome.Delete(w, v.Proposal)
	}
	for _, k := range c.Sets {
		refused = refused || k.Version >= first
		setChunks.Delete(w, k)
	}
	for _, seq := range c.Audits {
		refused = refused || seq >= audit
		audits.Delete(w, seq)
	}
	for _, id := range c.Outcomes {
		how, _ := doneOutcome.Get(r, id)
		refused = refused || how.State == StateCommitted
		doneOutcome.Delete(w, id)
	}
	if refused {
		return tree, &GuardError{Op: -1, Guard: "statement"}
	}
	tree.Bytes -= min(tree.Bytes, c.Bytes)
	metaTree.Put(w, keyTree, tree)
	return tree, nil
}

// sliceOf returns the next slice from a version on.
func sliceOf(r store.Reader, from uint64) (c PruneSlice, err error) {
	keys, bytes := 0, 0
	fits := func(n, size int) bool {
		keys, bytes = keys+n, bytes+size
		return keys == n || keys <= maxPruneKeys && bytes <= maxPruneBytes
	}
	first, _ := metaNumber.Get(r, keyMin)
	kept := keptVersions(r)
	for v, raw := range entries.Range(r, from, first) {
		if kept[v] {
			continue
		}
		payload, _ := payloads.Get(r, v)
		if !fits(3, len(raw)+len(payload)) {
			return c, nil
		}
		a, err := record.ParseEntry(raw)
		if err != nil {
			return c, fmt.Errorf("entry of version %d: %w", v, err)
		}
		id, err := parseID(a.ProposalID)
		if err != nil {
			return c, fmt.Errorf("entry of version %d: %w", v, err)
		}
		c.Versions, c.Bytes = append(c.Versions, prunedVersion{v, id}), c.Bytes+int64(len(raw)+len(payload))
	}
	for k, raw := range setChunks.Range(r, setKey{}, setKey{first, 0}) {
		if !fits(1, len(raw)) {
			return c, nil
		}
		c.Sets = append(c.Sets, k)
	}
	audit, _ := metaNumber.Get(r, keyAuditMin)
	for seq, raw := range audits.Range(r, 0, audit) {
		if !fits(2, len(raw)) {
			return c, nil
		}
		rec, err := record.ParseAudit(raw)
		if err != nil {
			return c, fmt.Errorf("audit record %d: %w", seq, err)
		}
		if id, ended := endedBy(r, rec); ended {
			c.Outcomes = append(c.Outcomes, id)
		}
		c.Audits = append(c.Audits, seq)
	}
	return c, nil
}

// endedBy returns the proposal that an audit record ends without a version. Its outcome goes with
// the record, because nothing else proves it.
func endedBy(r store.Reader, rec *record.Audit) (id ulid.ULID, ended bool) {
	id, err := parseID(rec.ProposalID)
	state := endState(rec.Event)
	if err != nil || rec.Decision != record.DecisionAccept || state == "" {
		return id, false
	}
	how, _ := doneOutcome.Get(r, id)
	return id, how.State == state && how.AtMS == timeOf(rec).UnixMilli()
}

// pruner is one run of the pruner task.
type pruner struct {
	e     *Engine
	from  uint64 // version that the sweep has reached
	swept bool   // every row that may go is deleted
	told  string // the last reason logged
}

// runPruner runs a cycle of retention for each archived checkpoint. First it finishes a cycle that
// a crash has interrupted.
func (e *Engine) runPruner(ctx context.Context) error {
	p := &pruner{e: e, swept: e.Head().MinVersion <= 1}
	if _, reason, err := e.coverOf(ctx, e.Head()); err == nil && reason == "" &&
		e.live().Retention.Policy != RetainAll {
		if err := p.sweep(ctx); err != nil {
			return err
		}
	}
	for {
		_, err := e.retentionCmd.Recv(ctx)
		if errors.Is(err, flow.ErrClosed) {
			return nil // drained
		}
		if err == nil {
			err = p.cycle(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// cycle makes the plan, stores the signed statement, and only then deletes.
func (p *pruner) cycle(ctx context.Context) error {
	plan, over, err := p.e.planRetention(ctx)
	if err != nil {
		return fmt.Errorf("plan retention: %w", err)
	}
	switch plan.Reason {
	case "":
		if err := p.state(ctx, plan, over); err != nil {
			return fmt.Errorf("retention from version %d on: %w", plan.Next, err)
		}
	case keepPolicy:
		return nil
	case keepNotDue:
		p.told = ""
	default:
		p.skip(plan.Reason)
		return nil
	}
	return p.sweep(ctx)
}

// skip counts a skipped cycle, and logs its reason once.
func (p *pruner) skip(reason string) {
	if p.e.m.pruneSkipped[reason](1); p.told != reason {
		p.e.log.Warn("retention.skipped", "reason", reason)
	}
	p.told = reason
}

// state signs and stores the statement of a plan. Once it is synced, readers see that the versions
// before are pruned.
func (p *pruner) state(ctx context.Context, plan RetentionPlan, over checkpoint.Signed) error {
	e := p.e
	said, audit, err := e.statement(ctx, plan, over)
	if err != nil {
		return err
	}
	key, err := e.logKey(e.Head())
	if err != nil {
		return err
	}
	note, err := key.SignText(said.Text())
	if err != nil {
		return err
	}
	put := PutRetention{Min: said.Min, Audit: audit, Size: said.Size, Segment: e.segment, Note: note}
	_, err = store.Commit(ctx, e.store, store.Bulk, put, func(struct{}) {
		now := e.current.Load()
		e.current.Store(now.bounded(put.Min, now.view.CheckpointSize))
	})
	if err == nil {
		p.swept, p.told = false, ""
		e.log.Info("retention.pruned", "min_version", plan.Next, "versions", plan.Versions, "checkpoint", over.Size)
	}
	return err
}

// sweep deletes slice by slice until nothing is left to delete.
func (p *pruner) sweep(ctx context.Context) error {
	for !p.swept {
		if err := p.slice(ctx); err != nil || p.swept {
			return err
		}
		t := time.NewTimer(prunePause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		}
	}
	return nil
}

// slice deletes one slice.
func (p *pruner) slice(ctx context.Context) error {
	var c PruneSlice
	err := p.e.view(ctx, func(r store.Reader) (err error) {
		c, err = sliceOf(r, p.from)
		return err
	})
	p.swept = c.keys() == 0
	if err != nil || p.swept {
		return err
	}
	if _, err := store.Commit(ctx, p.e.store, store.Bulk, c, func(tree treeRow) { p.e.tree.Store(&tree) }); err != nil {
		return fmt.Errorf("prune from version %d on: %w", p.from, err)
	}
	if n := len(c.Versions); n > 0 {
		p.from = c.Versions[n-1].Version + 1
	}
	p.e.m.prunedVersions(len(c.Versions))
	p.e.m.prunedKeys(c.keys())
	return nil
}
