package pipeline

import (
	"context"
	"fmt"

	"ronbox/engines"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/rverify"
	"ronbox/engines/registry/tables"
)

// Bounds of one job of a catch-up.
const (
	replayRecords = 256
	replayBytes   = 1 << 20 // no version is added above it
)

// Replay copies the audit records up to last, and their versions, from another copy of this log,
// which the caller has verified. It copies as many as one job takes and returns their number.
func (p *Pipeline) Replay(ctx context.Context, src rverify.LogReader, last uint64, actor engines.Actor,
	corrID string) (uint64, error) {
	steps, err := nextSteps(src, p.deps.Published.State.Load().Audit.Seq, last)
	if err != nil {
		return 0, fmt.Errorf("catch up: %w: %w", document.ErrSource, err)
	}
	for i := range steps {
		if steps[i].payload != nil {
			steps[i].packed = p.deps.Reader.Codec.Pack(steps[i].payload.Bytes())
		}
	}
	_, err = p.submit(ctx, p.approvals, replayReq{steps: steps}, actor, corrID)
	return uint64(len(steps)), err
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

func (replayReq) pastGuard() {}

func (replayReq) refuse(c *counts, _ string) { c.rejected++ }

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
	items, err := p.deps.Reader.ItemsAfter(s.payload, head.Base())
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
