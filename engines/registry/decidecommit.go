package registry

import (
	"cmp"
	"fmt"

	"github.com/oklog/ulid/v2"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/record"
)

type commitReq struct{ id ulid.ULID }

func (commitReq) name() string { return "commit" }

func (r commitReq) describe(rec *record.Audit) { rec.ProposalID = idText(r.id) }

// decide answers a repeat, else checks the chain and the quorum once more and appends the version to the plan.
func (r commitReq) decide(p *plan, j *job) (answer, error) {
	if p.next.live[r.id] == nil {
		how, known, err := p.outcome(r.id)
		if err == nil && known && how.State == StateCommitted {
			return answer{committed: how.replay()}, nil
		}
	}
	prop, err := p.find(r.id)
	if err != nil {
		return answer{}, err
	}
	head := p.next.view
	switch {
	case prop.row.Version != head.Head.Version+1:
		if parent := p.next.byPayload(prop.row.PrevHash); parent != nil {
			return answer{}, &ParentPendingError{ID: idText(r.id), Parent: idText(parent.id)}
		}
		return answer{}, record.ErrVersionSkew
	case prop.row.PrevHash != head.Head.PayloadB3:
		return answer{}, record.ErrChainMismatch
	case prop.payload.Supersede != nil && prop.payload.Supersede.Of != head.Head.Hash:
		return answer{}, record.ErrChainMismatch
	}
	counted, err := record.Authorize(prop.payload, head.Signers, prop.approvals)
	if err != nil {
		return answer{}, err
	}
	items, err := p.e.itemsAfter(prop.payload, head.base())
	if err != nil {
		return answer{}, err
	}
	return p.append(j, version{
		id: r.id, payload: prop.payload, packed: prop.packed, approvals: counted, items: items, signers: prop.payload.SignersAfter(head.Signers), prop: prop,
	})
}

type genesisReq struct {
	id        ulid.ULID
	payload   *record.Payload
	packed    []byte
	approvals []record.Approval // verified
	items     record.Items
}

func (genesisReq) name() string { return "genesis" }

func (r genesisReq) describe(rec *record.Audit) { rec.PayloadB3, rec.Version = r.payload.B3(), 1 }

// decide appends version 1 to an empty log.
func (r genesisReq) decide(p *plan, j *job) (answer, error) {
	if head := p.next.view.Head; head.Version > 0 {
		if p.next.view.genesis == r.payload.B3() {
			return p.genesisAgain()
		}
		return answer{}, fmt.Errorf("genesis: %w: the log begins with another genesis", ErrConflict)
	}
	return p.append(j, version{
		id: r.id, payload: r.payload, packed: r.packed, approvals: r.approvals, items: r.items, signers: r.payload.SignerSet,
	})
}

// genesisAgain answers a genesis that another caller has committed since this one was queued.
func (p *plan) genesisAgain() (answer, error) {
	for _, how := range p.done {
		if how.State == StateCommitted && how.Version == 1 { // in this very batch
			return answer{committed: how.replay()}, nil
		}
	}
	done, err := p.e.genesisCommitted(p.ctx, p.next.view.genesis)
	return answer{committed: done}, err
}

// version is a decided version: quorum, chain and items are checked.
type version struct {
	id        ulid.ULID
	payload   *record.Payload
	packed    []byte
	approvals []record.Approval // counted
	items     record.Items      // after it
	signers   *record.SignerSet // in force after it
	prop      *proposal         // nil for genesis
}

// append puts a version on the speculative HEAD. What it leaves without a base goes stale.
func (p *plan) append(j *job, v version) (answer, error) {
	head := p.next.view
	entry, err := p.artifact(v)
	if err != nil {
		return answer{}, err
	}
	raw := entry.Bytes()
	op := &CommitOp{
		Version: v.payload.Version, Hash: b3.Sum(raw), PayloadB3: v.payload.B3(), PrevHash: head.Head.PayloadB3,
		CommittedAt: entry.CommittedAt, Epoch: v.signers.Epoch, Entry: raw,
	}
	if v.payload.SignerSet != nil {
		op.Set = v.signers.Bytes()
	}
	kind := OpCommit
	if v.prop == nil {
		kind, op.Packed, op.Origin = OpGenesis, v.packed, v.payload.Origin
	} else {
		p.next.remove(v.prop)
	}
	rec := j.audit(record.EventOf(v.payload.Kind))
	rec.ProposalID, rec.PayloadB3, rec.Version = idText(v.id), op.PayloadB3, op.Version
	for _, a := range v.approvals {
		rec.Signers = append(rec.Signers, a.SignerID)
	}
	p.add(j, Op{Do: kind, ID: v.id, Commit: op}, rec)
	p.advance(j, v, op)
	p.sweepOrphans()
	return answer{committed: Committed{Version: op.Version, PayloadB3: op.PayloadB3, CommittedAt: op.CommittedAt, Hash: op.Hash}}, nil
}

// artifact is the log entry of v: it names the entry before it, the set that authorized it and the audit record before it.
func (p *plan) artifact(v version) (*record.Artifact, error) {
	head := p.next.view
	authorizedBy := cmp.Or(head.signersB3, v.payload.SignerSetB3) // genesis is authorized by the set it installs
	return record.NewArtifact(record.Artifact{
		Origin: v.payload.Origin, Version: v.payload.Version, Kind: v.payload.Kind,
		PayloadB3: v.payload.B3(), PayloadBytes: int64(len(v.payload.Bytes())), PrevHash: head.Head.Hash,
		Approvals: v.approvals, AuthorizedBy: authorizedBy,
		AuditSeq: p.next.audit.Seq, AuditHead: p.next.audit.B3,
		ProposalID: idText(v.id), CommittedAt: max(record.FormatTime(p.now), head.Head.CommittedAt),
	})
}

// advance moves the speculative HEAD.
func (p *plan) advance(j *job, v version, op *CommitOp) {
	head := *p.next.view
	head.Head = record.Head{Version: op.Version, Hash: op.Hash, PayloadB3: op.PayloadB3, CommittedAt: op.CommittedAt, Epoch: op.Epoch}
	head.Origin, head.Expiry, head.Items, head.Signers = v.payload.Origin, v.payload.Expiry, v.items, v.signers
	head.signersB3 = v.payload.SignerSetB3
	if op.Version == 1 {
		head.genesis, head.MinVersion = op.PayloadB3, 1
	}
	p.next.view = newHeadView(head)
	p.done[v.id] = op.outcome()
	p.counts.committed++
	if v.payload.Kind == record.KindSupersede {
		p.counts.superseded++
	}
	p.counts.proposals[StateCommitted]++
	p.events = append(p.events, Update{
		Version: op.Version, PayloadB3: op.PayloadB3, CommittedAt: op.CommittedAt, CorrID: j.corrID, Hash: op.Hash, Kind: v.payload.Kind,
	})
}
