package rverify

import (
	"bytes"
	"context"
	"math"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/record"
)

// auditChunk is how many audit records are held in memory at once.
const auditChunk = 1024

// auditRow is one audit record as read.
type auditRow struct {
	seq     uint64
	raw     []byte
	rec     *record.Audit
	sum     b3.Digest
	parsing *Problem
}

// catchUp checks the audit records up to that of the last verified version's commit, within the budget.
func (v *Verifier) catchUp(ctx context.Context, r LogReader, budget *int) (done bool, err error) {
	if len(v.due) == 0 {
		return true, nil
	}
	if done, err := v.audit(ctx, r, v.due[len(v.due)-1].seq+1, budget); !done || err != nil {
		return false, err
	}
	if len(v.due) > 0 {
		c := v.due[0]
		return false, problemf(KindChain, c.version, "the entry names audit record %d, which lies before that of the version before it", c.seq)
	}
	return true, nil
}

// tail checks the audit records behind the last commit and compares the audit head.
func (v *Verifier) tail(ctx context.Context, r LogReader, budget *int) (done bool, err error) {
	seq, sum, err := r.AuditHead()
	if err != nil {
		return false, problemf(KindIncomplete, 0, "audit head: %v", err)
	}
	if seq < v.at.AuditSeq {
		return false, problemf(KindChain, 0, "the audit head is record %d, but record %d was there", seq, v.at.AuditSeq)
	}
	if done, err := v.audit(ctx, r, seq, budget); !done || err != nil {
		return false, err
	}
	if sum != v.at.AuditB3 {
		return false, problemf(KindChain, 0, "the audit head says %s, record %d is %s", sum, seq, v.at.AuditB3)
	}
	for extra := range r.Audit(0, 0) {
		return false, problemf(KindChain, 0, "audit record %d lies before the first", extra)
	}
	for extra := range r.Audit(seq+1, math.MaxUint64-1) { // a reader may add one
		return false, problemf(KindChain, 0, "audit record %d lies behind the audit head", extra)
	}
	return true, nil
}

// audit checks the records up to and including to, within the budget.
func (v *Verifier) audit(ctx context.Context, r LogReader, to uint64, budget *int) (done bool, err error) {
	for v.at.AuditSeq < to {
		if *budget <= 0 {
			return false, nil
		}
		n := min(to-v.at.AuditSeq, auditChunk, uint64(*budget))
		rows, p := v.readAudit(r, n)
		if p != nil {
			return false, p
		}
		if err := v.o.each(ctx, len(rows), func(i int) { rows[i].parse() }); err != nil {
			return false, err
		}
		for i := range rows {
			if p := v.linkAudit(&rows[i]); p != nil {
				return false, p
			}
		}
		*budget -= len(rows)
	}
	return true, nil
}

func (v *Verifier) readAudit(r LogReader, n uint64) ([]auditRow, *Problem) {
	rows := make([]auditRow, 0, n)
	next := v.at.AuditSeq + 1
	for seq, raw := range r.Audit(next, next+n-1) {
		if seq != next {
			break
		}
		rows = append(rows, auditRow{seq: seq, raw: raw})
		next++
	}
	if uint64(len(rows)) < n {
		return nil, problemf(KindIncomplete, 0, "audit record %d is missing", next)
	}
	return rows, nil
}

func (a *auditRow) parse() {
	var err error
	if a.rec, err = record.ParseAudit(a.raw); err != nil {
		a.parsing = problemf(KindChain, 0, "audit record %d: %v", a.seq, err)
		return
	}
	if !bytes.Equal(a.rec.Bytes(), a.raw) {
		a.parsing = problemf(KindChain, 0, "audit record %d is not in canonical form", a.seq)
		return
	}
	a.sum = b3.Sum(a.raw)
}

// linkAudit holds a record against the one before it and against the commits that speak of it.
func (v *Verifier) linkAudit(a *auditRow) *Problem {
	if a.parsing != nil {
		return a.parsing
	}
	if a.rec.Seq != a.seq || a.rec.Prev != v.at.AuditB3 {
		return problemf(KindChain, 0, "audit record %d does not follow record %d", a.seq, v.at.AuditSeq)
	}
	if p := v.linkCommit(a); p != nil {
		return p
	}
	v.at.AuditSeq, v.at.AuditB3 = a.seq, a.sum
	v.report.AuditRecords++
	return nil
}

// linkCommit demands the record of a commit exactly where its entry puts it, right behind the record the entry vouches for.
func (v *Verifier) linkCommit(a *auditRow) *Problem {
	if len(v.due) == 0 || v.due[0].seq+1 > a.seq {
		if a.rec.Commits() {
			return problemf(KindChain, a.rec.Version, "audit record %d tells of a commit that the log does not have", a.seq)
		}
		return nil
	}
	c := v.due[0]
	switch {
	case c.seq+1 < a.seq:
		return problemf(KindChain, c.version, "the entry names audit record %d, which lies before that of the version before it", c.seq)
	case c.sum != v.at.AuditB3:
		return problemf(KindChain, c.version, "the entry names another audit record %d", c.seq)
	case !a.rec.Commits() || a.rec.Event != c.event,
		a.rec.Version != c.version, a.rec.PayloadB3 != c.payloadB3, a.rec.ProposalID != c.proposalID:
		return problemf(KindChain, c.version, "audit record %d does not tell of its commit", a.seq)
	}
	v.due = v.due[1:]
	return nil
}
