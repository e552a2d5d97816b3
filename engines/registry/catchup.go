package registry

import (
	"context"
	"errors"
	"fmt"
	"os"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/export"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/rverify"
	"ronbox/engines/registry/seal"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// Bounds of one job of a catch-up.
const (
	replayRecords = 256
	replayBytes   = 1 << 20 // no version is added above it
)

// CatchUp copies the versions and audit records that this file has lost from another copy of its
// log. It verifies the copy first, from genesis on. It ends a rollback once the log reaches the
// high-water mark. It returns ErrConflict if the fork guard is not tripped.
func (e *Engine) CatchUp(ctx context.Context, actor engines.Actor, src rverify.LogReader,
	corrID string) (out document.CaughtUp, err error) {
	if err := e.Follows(); err != nil {
		return out, err
	}
	if e.seal.Tripped() == nil {
		return out, fmt.Errorf("catch up: %w: nothing is missing", document.ErrConflict)
	}
	st := e.pub.State.Load()
	out.From, out.To = st.View.Head.Version, st.View.Head.Version
	if err := e.checkSource(ctx, st, src); err != nil {
		return out, fmt.Errorf("catch up: %w", err)
	}
	last, _, err := src.AuditHead()
	if err != nil {
		return out, fmt.Errorf("catch up: %w: %w", document.ErrSource, err)
	}
	if st.Audit.Seq >= last {
		return out, fmt.Errorf(
			"catch up: %w: nothing newer there: it ends with version %d and audit record %d, as this log does",
			document.ErrSource,
			out.From,
			last,
		)
	}
	for at := st.Audit.Seq; at < last; at = e.pub.State.Load().Audit.Seq {
		steps, err := nextSteps(src, at, last)
		if err != nil {
			return out, fmt.Errorf("catch up: %w: %w", document.ErrSource, err)
		}
		for i := range steps {
			if steps[i].payload != nil {
				steps[i].packed = e.Codec.Pack(steps[i].payload.Bytes())
			}
		}
		if _, err := e.submit(ctx, e.approvals, replayReq{steps: steps}, actor, corrID); err != nil {
			return out, err
		}
		out.To, out.Records = e.Head().Head.Version, out.Records+uint64(len(steps))
	}
	if _, found, err := e.seal.CheckMark(ctx, e.Head(), e.pub.Latest.Load() != nil); err != nil {
		return out, err
	} else if found != nil && found.Reason != seal.RollbackNoMark {
		e.seal.Trip(found)
		return out, found.Err()
	}
	for _, o := range e.seal.Objections().Open() {
		switch {
		case o.Size > out.To:
			return out, fmt.Errorf("catch up: %w: it ends with version %d, and %w", document.ErrSource, out.To, &o)
		case o.Size <= out.From: // it contradicts the versions of this file
			return out, fmt.Errorf(
				"catch up: %w: no later version settles that %w; "+
					"have an operator adopt the log, or restore the other one",
				document.ErrSource,
				&o,
			)
		}
	}
	return out, e.seal.Accept(ctx, false, actor, corrID)
}

// CatchUpFrom is CatchUp from a path on this disk: the directory of an export, or a database file
// that no node has open, such as a snapshot.
func (e *Engine) CatchUpFrom(ctx context.Context, actor engines.Actor,
	path, corrID string) (out document.CaughtUp, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return out, fmt.Errorf("%w: %w", document.ErrSource, err)
	}
	if info.IsDir() {
		src, err := export.Open(path)
		if err != nil {
			return out, fmt.Errorf("%w: %w", document.ErrSource, err)
		}
		return e.CatchUp(ctx, actor, src, corrID)
	}
	r, err := store.OpenReader(path)
	if err != nil {
		return out, fmt.Errorf("%w: %w", document.ErrSource, err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	err = r.View(ctx, func(rd store.Reader) error {
		out, err = e.CatchUp(ctx, actor, tables.NewSource(rd), corrID)
		return err
	})
	return out, err
}

// checkSource verifies the copy and that this log is a prefix of it.
func (e *Engine) checkSource(ctx context.Context, st *tables.State, src rverify.LogReader) error {
	if src.Followed() {
		return fmt.Errorf("%w: it is a copy of a follower, whose audit records are not verified", document.ErrSource)
	}
	h, err := src.Horizon()
	if err != nil {
		return fmt.Errorf("%w: %w", document.ErrSource, err)
	}
	if h != nil && st.View.Head.Version < h.Min {
		return fmt.Errorf("%w: it is pruned up to version %d, and this log ends with %d: take a copy from before that",
			document.ErrSource, h.Min-1, st.View.Head.Version)
	}
	report, err := rverify.Verify(ctx, src,
		rverify.Options{Genesis: st.View.GenesisB3, Fan: flow.Fan, Jobs: cap(e.slots)})
	if err != nil {
		return err
	}
	if report.Problem != nil {
		return fmt.Errorf("%w: %w", document.ErrSource, report.Problem)
	}
	own := st.View.Head
	if report.Head.Version < own.Version {
		return fmt.Errorf("%w: it holds %d versions, this log %d", document.ErrSource, report.Head.Version, own.Version)
	}
	if own.Version > 0 {
		if raw, err := src.Entry(own.Version); err != nil || b3.Sum(raw) != own.Hash {
			return fmt.Errorf("%w: its version %d is another one", document.ErrSource, own.Version)
		}
	}
	if st.Audit.Seq == 0 {
		return nil
	}
	for _, raw := range src.Audit(st.Audit.Seq, st.Audit.Seq) {
		if b3.Sum(raw) == st.Audit.B3 {
			return nil
		}
	}
	return fmt.Errorf("%w: its audit record %d is another one", document.ErrSource, st.Audit.Seq)
}

// replayStep is an audit record, and its version if it commits one.
type replayStep struct {
	raw     []byte
	rec     *record.Audit
	entry   *record.Artifact
	payload *record.Payload
	packed  []byte
}

// nextSteps reads the audit records after a sequence number, as many as one job takes.
func nextSteps(src rverify.LogReader, after, last uint64) (steps []replayStep, err error) {
	size := 0
	for _, raw := range src.Audit(after+1, min(last, after+replayRecords)) {
		s := replayStep{raw: append([]byte(nil), raw...)}
		if s.rec, err = record.ParseAudit(s.raw); err != nil {
			return nil, err
		}
		if s.rec.Commits() {
			if s.entry, s.payload, err = readVersion(src, s.rec.Version); err != nil {
				return nil, err
			}
			size += len(s.payload.Bytes())
		}
		steps = append(steps, s)
		if size > replayBytes {
			break
		}
	}
	if len(steps) == 0 {
		return nil, rverify.ErrMissing
	}
	return steps, nil
}

func readVersion(src rverify.LogReader, v uint64) (*record.Artifact, *record.Payload, error) {
	raw, err := src.Entry(v)
	if err != nil {
		return nil, nil, err
	}
	entry, err := record.ParseEntry(raw)
	if err != nil {
		return nil, nil, err
	}
	if raw, err = src.Payload(v); err != nil {
		return nil, nil, err
	}
	payload, err := record.ParsePayload(raw)
	return entry, payload, err
}

// replayReq appends verified steps of another copy of the log.
type replayReq struct{ steps []replayStep }

func (replayReq) name() string { return "replay" }

func (replayReq) describe(*record.Audit) {}

// decide appends the records unchanged and checks each version against the one before it again.
func (r replayReq) decide(p *plan, j *job) (answer, error) {
	for i := range r.steps {
		s := &r.steps[i]
		if s.rec.Seq != p.next.Audit.Seq+1 || s.rec.Prev != p.next.Audit.B3 {
			return answer{}, record.ErrChainMismatch
		}
		step := tables.Step{Audit: s.raw}
		if s.entry != nil {
			op, err := p.replay(j, s)
			if err != nil {
				return answer{}, err
			}
			step.Op = op
		}
		p.chain(j, step, *s.rec)
	}
	return answer{}, nil
}

// replay moves the speculative HEAD to the version of a step.
func (p *plan) replay(j *job, s *replayStep) (op tables.ReplayOp, err error) {
	head := p.next.View
	items, err := p.e.ItemsAfter(s.payload, head.Base())
	if err != nil {
		return op, err
	}
	id, err := tables.ParseID(s.entry.ProposalID)
	if err != nil {
		return op, err
	}
	v := version{
		id: id, payload: s.payload, packed: s.packed, approvals: s.entry.Approvals,
		items: items, signers: s.payload.SignersAfter(head.Signers),
	}
	op = tables.ReplayOp{Version: v.appended(s.entry, head), Packed: s.packed}
	if prop := p.next.Live[id]; prop != nil { // it became a version in the other copy
		p.next.Remove(prop)
	}
	p.advance(j, v, op.Version)
	return op, nil
}
