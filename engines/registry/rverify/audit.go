package rverify

import (
	"bytes"
	"context"
	"math"

	"ronbox/engines/registry/record"
)

// auditChunk is the number of audit records held in memory at once.
const auditChunk = 1024

// catchUp checks the audit records up to that of the commit of the last verified version, within
// the budget.
func (v *Verifier) catchUp(ctx context.Context, r LogReader, budget *int) (done bool, err error) {
	if len(v.due) == 0 {
		return true, nil
	}
	if done, err := v.audit(ctx, r, v.due[len(v.due)-1].AuditSeq+1, budget); !done || err != nil {
		return false, err
	}
	if len(v.due) > 0 {
		return false, outOfTurn(v.due[0])
	}
	return true, nil
}

// tail checks the audit records after the last commit and compares the audit head.
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
		return false, problemf(KindChain, 0, "the audit head is %s, but record %d is %s", sum, seq, v.at.AuditB3)
	}
	for extra := range r.Audit(0, 0) {
		return false, problemf(KindChain, 0, "audit record %d lies before the first", extra)
	}
	for extra := range r.Audit(seq+1, math.MaxUint64-1) { // a reader may add one
		return false, problemf(KindChain, 0, "audit record %d is after the audit head", extra)
	}
	return true, nil
}

// audit checks the records up to and including to, within the budget.
func (v *Verifier) audit(ctx context.Context, r LogReader, to uint64, budget *int) (done bool, err error) {
	for v.at.AuditSeq < to {
		if *budget <= 0 {
			return false, nil
		}
		rows, err := v.readAudit(r, min(to-v.at.AuditSeq, auditChunk, uint64(*budget)))
		if err != nil {
			return false, err
		}
		first, recs := v.at.AuditSeq+1, make([]*record.Audit, len(rows))
		sound, fault := v.o.each(ctx, len(rows), func(i int) (err error) {
			recs[i], err = parseAudit(first+uint64(i), rows[i])
			return err
		})
		for _, rec := range recs[:sound] {
			if err := v.linkAudit(rec); err != nil {
				return false, err
			}
		}
		if fault != nil {
			return false, fault
		}
		*budget -= len(rows)
	}
	return true, nil
}

// readAudit reads the n records after the last verified one.
func (v *Verifier) readAudit(r LogReader, n uint64) (rows [][]byte, err error) {
	next := v.at.AuditSeq + 1
	for seq, raw := range r.Audit(next, next+n-1) {
		if seq != next {
			break
		}
		rows = append(rows, raw)
		next++
	}
	if uint64(len(rows)) < n {
		return nil, problemf(KindIncomplete, 0, "audit record %d is missing", next)
	}
	return rows, nil
}

func parseAudit(seq uint64, raw []byte) (*record.Audit, error) {
	rec, err := record.ParseAudit(raw)
	if err != nil {
		return nil, problemf(KindChain, 0, "audit record %d: %v", seq, err)
	}
	if !bytes.Equal(rec.Bytes(), raw) {
		return nil, problemf(KindChain, 0, "audit record %d is not in canonical form", seq)
	}
	return rec, nil
}

// linkAudit compares a record with the one before it and with the commits that name it.
func (v *Verifier) linkAudit(rec *record.Audit) error {
	seq := v.at.AuditSeq + 1
	if rec.Seq != seq || rec.Prev != v.at.AuditB3 {
		return problemf(KindChain, 0, "audit record %d does not follow record %d", seq, v.at.AuditSeq)
	}
	if err := v.linkCommit(rec); err != nil {
		return err
	}
	v.at.AuditSeq, v.at.AuditB3 = seq, rec.B3()
	v.report.AuditRecords++
	return nil
}

// linkCommit demands the record of a commit directly after the record that its entry names.
func (v *Verifier) linkCommit(rec *record.Audit) error {
	if len(v.due) == 0 || v.due[0].AuditSeq+1 > rec.Seq {
		if rec.Commits() {
			return problemf(KindChain, rec.Version, "audit record %d names a commit that is not in the log",
				rec.Seq)
		}
		return nil
	}
	e := v.due[0]
	switch {
	case e.AuditSeq+1 < rec.Seq:
		return outOfTurn(e)
	case e.AuditHead != v.at.AuditB3:
		return problemf(KindChain, e.Version, "the entry names another audit record %d", e.AuditSeq)
	case !rec.Commits() || rec.Event != record.EventOf(e.Kind),
		rec.Version != e.Version, rec.PayloadB3 != e.PayloadB3, rec.ProposalID != e.ProposalID:
		return problemf(KindChain, e.Version, "audit record %d does not name its commit", rec.Seq)
	}
	v.due = v.due[1:]
	return nil
}

func outOfTurn(e *record.Artifact) error {
	return problemf(KindChain, e.Version,
		"the entry names audit record %d, which lies before that of the version before it", e.AuditSeq)
}
