package pipeline

import (
	"context"

	"ronbox/engines"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
)

// Adopt adopts the log, if an incarnation is given, and settles or deletes the objections of
// witnesses.
func (p *Pipeline) Adopt(ctx context.Context, incarnation string, settle bool, actor engines.Actor,
	corrID string) error {
	_, err := p.submit(ctx, p.approvals, adoptReq{incarnation: incarnation, settle: settle}, actor, corrID)
	return err
}

// adoptReq ends a rollback.
type adoptReq struct {
	incarnation string // "": the log is not in question, and settle is set
	settle      bool   // settle the objections of witnesses, not delete them
}

func (adoptReq) name() string { return "adopt" }

func (adoptReq) pastGuard() {}

func (adoptReq) describe(*record.Audit) {}

func (adoptReq) refuse(*counts, string) {}

func (r adoptReq) decide(p *plan, j *job) (answer, error) {
	p.add(j, tables.AdoptOp{Incarnation: r.incarnation, Settle: r.settle}, j.audit(tables.EventAdopted))
	p.adopts = r.incarnation != ""
	p.sweepOrphans() // a replay cannot end them: its records must be consecutive
	return answer{}, nil
}
