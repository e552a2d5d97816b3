package wallet

import (
	"sync"
	"sync/atomic"

	"ronbox/appliance/obs"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// svcAuth names the tokens of the node, which authorize requests, as a callee in metrics.
const svcAuth = "auth"

// busAudit is events_tx in the label bus.
const busAudit = "audit"

// requestOps are the operations that callers can ask for.
var requestOps = [...]record.Op{
	record.OpIssue,
	record.OpTransfer,
	record.OpBurn,
	record.OpHold,
	record.OpCapture,
	record.OpRelease,
	record.OpFlags,
	record.OpAsset,
	record.OpScale,
	record.OpBatch,
}

// metrics holds the wallet's series. All are made at the start, so that they show as zero.
type metrics struct {
	requests       map[record.Op]func(int)
	inflight       map[record.Op]*atomic.Int64
	rejects        map[string]func(int) // by reason
	replays        func(int)
	nonceConflicts func(int)
	canceled       func(int) // jobs that their callers had left, or that shutdown ended
	ledgerTimeouts func(int)
	upstreamFail   func(int)
	authFail       func(int) // ticks at which no request could be authorized
	calls          map[string]func() *callSeries
	balances       map[string]func(int) // balance_cache_total by outcome
	dropped        func(int)            // audit events that the stream missed, as a queue; as a bus flow counts them
	busy           atomic.Int64         // workers that have a burst
	busySeen       atomic.Int64         // busy, as of the last tick
}

func walletFamilies() []obs.Family {
	return []obs.Family{
		{
			Name:   "wallet_requests_total",
			Type:   obs.Counter,
			Labels: []string{"op"},
			Help:   "Requests to move money or to change an account, a batch being one.",
		},
		{
			Name:   "wallet_rejects_total",
			Type:   obs.Counter,
			Labels: []string{"reason"},
			Help:   "Requests, and ops of batches, that were not carried out, by reason.",
		},
		{
			Name: "wallet_idem_replays_total",
			Type: obs.Counter,
			Help: "Requests answered with what an earlier one with the same key had done.",
		},
		{Name: "wallet_inflight", Type: obs.Gauge, Labels: []string{"op"}, Help: "Requests being worked on."},
		{
			Name: "wallet_nonce_conflicts_total",
			Type: obs.Counter,
			Help: "Requests whose nonce was used up, or ahead of its account.",
		},
		{
			Name:   "balance_cache_total",
			Type:   obs.Counter,
			Labels: []string{"outcome"},
			Help: "Reads of balances: from memory (hit), from the file (miss), before a record that the " +
				"reader waits for (behind).",
		},
	}
}

func newMetrics(reg *obs.Metrics) *metrics {
	reg.Declare(walletFamilies()...)
	m := &metrics{
		requests: map[record.Op]func(int){}, inflight: map[record.Op]*atomic.Int64{}, rejects: map[string]func(int){},
		replays:        reg.Counter("wallet_idem_replays_total", service),
		nonceConflicts: reg.Counter("wallet_nonce_conflicts_total", service),
		canceled:       reg.Counter("tasks_canceled_total", service, "kind", taskWorker),
		ledgerTimeouts: reg.Counter("io_timeouts_total", service, "op", "ledger_rpc"),
		upstreamFail:   reg.Counter("upstream_fail_total", service, "svc", ledgerName),
		calls:          map[string]func() *callSeries{},
		balances:       series(reg, "balance_cache_total", "outcome", balanceHit, balanceMiss, balanceBehind),
	}
	for _, op := range []string{"read", "write", "connect"} { // counted by httpapi
		reg.Counter("io_timeouts_total", service, "op", op)
	}
	// counted by the bus; shown from the start
	reg.Counter("bus_lagged_total", service, "bus", busAudit, "consumer", taskAudit)
	m.dropped = reg.Counter("queue_dropped_total", service, "queue", "events")
	m.authFail = reg.Counter("upstream_fail_total", service, "svc", svcAuth)
	for _, op := range requestOps {
		m.requests[op] = reg.Counter("wallet_requests_total", service, "op", op.String())
		n := new(atomic.Int64)
		m.inflight[op] = n
		reg.Gauge("wallet_inflight", service, func() float64 { return float64(n.Load()) }, "op", op.String())
	}
	for _, reason := range allReasons() {
		m.rejects[reason] = reg.Counter("wallet_rejects_total", service, "reason", reason)
	}
	for _, op := range []string{
		opCommit, opProbe, opPrepare, opBalance, opAccount, opAssets, opTx, opHistory, opRoots, opHead, opProve,
		opConsistency,
	} {
		m.calls[op] = sync.OnceValue(func() *callSeries { return newCallSeries(reg, op) })
	}
	reg.Gauge("worker_inflight", service, func() float64 { return float64(m.busySeen.Load()) })
	return m
}

// series returns one counter for each value of a label.
func series(reg *obs.Metrics, family, label string, values ...string) map[string]func(int) {
	out := make(map[string]func(int), len(values))
	for _, v := range values {
		out[v] = reg.Counter(family, service, label, v)
	}
	return out
}

// rejected counts the ops that were refused inside a batch that was answered.
func (m *metrics) rejected(out *ledger.Outcome) {
	if out.Replayed || out.Reject != nil {
		return
	}
	for i := range out.Results {
		if r := out.Results[i].Reject; r != nil {
			m.reject(ReasonOf(r))
		}
	}
}

// reject counts a refusal.
func (m *metrics) reject(reason string) {
	m.rejects[reason](1)
	if reason == record.NonceGap.String() || reason == record.NonceReused.String() {
		m.nonceConflicts(1)
	}
}
