package wallet

import (
	"context"
	"sync/atomic"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/upstream"
	"ronbox/engines/ledger"
)

const (
	Service, SvcAuth, TaskWorker, TaskInvalidator = service, svcAuth, taskWorker, taskInvalidator
	KeyAuth, KeyBreaker, KeyConfig                = keyAuth, keyBreaker, keyConfig
	KeyLedger, KeyQueue, EventRejected            = keyLedger, keyQueue, eventRejected
	EventHoldOpened, EventHoldExpired, EventRoot  = eventHoldOpened, eventHoldExpired, eventRoot
	EventHoldCaptured, BalanceHit, BalanceMiss    = eventHoldCaptured, balanceHit, balanceMiss
	OpAccount, OpAssets, OpBalance, OpCommit      = opAccount, opAssets, opBalance, opCommit
	OpConsistency, OpHead, OpHistory, OpPrepare   = opConsistency, opHead, opHistory, opPrepare
	OpProbe, OpRoots, OpTx, AuditRow              = opProbe, opRoots, opTx, auditRow
	FlightWaiters, WorkCap, ProbesNeeded          = flightWaiters, workCap, probesNeeded
	ProbeEvery, TickEvery, WatchEvery             = probeEvery, tickEvery, watchEvery
)

var RequestOps, AllReasons, Check, NewFingerprints = requestOps, allReasons, check, newFingerprints

func (e *Engine) Calls() *upstream.Calls                             { return e.calls }
func (e *Engine) Gates() *gates                                      { return &e.gates }
func (e *Engine) Work() *flow.Queue[*job]                            { return e.work }
func (e *Engine) Batched() *room                                     { return &e.batched }
func (e *Engine) Progress() *progress                                { return &e.progress }
func (e *Engine) Awaiting() *atomic.Int64                            { return &e.awaiting }
func (e *Engine) Flights() int                                       { return e.flights.Len() }
func (e *Engine) Warm() *func(context.Context, string, string) error { return &e.warm }
func (e *Engine) AuthReady() *func() error                           { return &e.authReady }
func (e *Engine) SafeMode() *func() string                           { return &e.safeMode }
func (e *Engine) Now() *func() time.Time                             { return &e.now }
func (e *Engine) Workers() *int                                      { return &e.workers }
func (e *Engine) Stall() time.Duration                               { return e.stall() }
func (e *Engine) Probe(ctx context.Context) (time.Duration, error)   { return e.probe(ctx) }
func (e *Engine) Audit(ev AuditEvent)                                { e.audit(ev) }
func (e *Engine) CatchUp(sub *flow.Subscription[ledger.Committed])   { (&invalidator{e: e}).catchUp(sub) }
func (g *gates) Ledger() *atomic.Bool                                { return &g.ledger.ok }
func (p *progress) Note(took time.Duration)                          { p.note(took) }
func (p *progress) Mean() *atomic.Int64                              { return &p.mean }
func (f fingerprints) Single(op *ledger.Op, b bool) b3.Digest        { return f.single(op, b) }
func (f fingerprints) Batch(atomic bool, ops []ledger.Op) b3.Digest  { return f.batch(atomic, ops) }
func (r *room) Used() (places, clients int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used, len(r.by)
}
func (e *Engine) Turns() int {
	if e.turn.holder.Load() != nil {
		return len(e.turn.free) + 1
	}
	return len(e.turn.free)
}
