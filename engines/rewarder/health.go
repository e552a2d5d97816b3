package rewarder

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
)

// Readiness keys. All are soft: the rest of the node keeps serving.
const (
	keyQueue    = "queue_ok"  // no queue is 80 % full
	keyLedger   = "ledger_ok" // the breaker is not open
	keyStore    = "store_ok"  // no run waits for a full or restored store, and no damaged row is known
	keyArtifact = "artifact"  // the files of the last run were written
	keyPayment  = "payment"   // no run is paused
)

// runHealth sets the readiness keys.
func (e *Engine) runHealth(ctx context.Context) error {
	defer e.tick.Stop()
	for {
		e.board.Set(service, keyQueue, e.backpressure())
		e.board.Set(service, keyLedger, causeIf(e.calls.IsOpen(), "ledger_degraded"))
		e.board.Set(service, keyStore, cmp.Or(e.runs.trouble(), e.mend(ctx)))
		e.board.Set(service, keyArtifact, causeIf(e.unwrote.Load(), "the files of a run could not be written"))
		e.board.Set(service, keyPayment, e.pausedRuns())
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-e.tick.C():
		}
	}
}

func causeIf(bad bool, cause string) error {
	if bad {
		return errors.New(cause)
	}
	return nil
}

// pausedRuns returns an error with the number of paused runs. It names none, because anonymous
// callers read it.
func (e *Engine) pausedRuns() error {
	if n := e.held.Load(); n > 0 {
		return fmt.Errorf(
			"runs whose payment is paused: %d; `ronbox rewarder show EPOCH` names the account, the log the epoch", n)
	}
	return nil
}

// backpressure returns an error that names a queue that is 80 % full.
func (e *Engine) backpressure() error {
	for name, n := range map[string]int{
		"work_req": e.requests.Len(),
		"work":     e.todo[toCompute].Len(),
		"intents":  e.todo[toPay].Len(),
		"results":  e.todo[toWrite].Len(),
	} {
		if n*10 >= queueCap*8 {
			return fmt.Errorf("backpressure: %s is at %d of %d", name, n, queueCap)
		}
	}
	return nil
}

// metrics holds the series that flow does not count, resolved once.
type metrics struct {
	canceled    func(int)
	dropped     func(int) // runs refused for lack of room in work
	lost        func(int) // runs with files that shutdown cut off
	late        func(int)
	quarantined *obs.Newest // runs, by epoch
}

// maxEpochs bounds the epochs that quarantine_total names. Older epochs are summed.
const maxEpochs = 64

func newMetrics(reg *obs.Metrics, c *flow.Catalog) *metrics {
	reg.Declare(
		obs.Family{
			Name: "dropped_results_total",
			Type: obs.Counter,
			Help: "Sealed runs whose files shutdown cut off; the next start writes them.",
		},
		obs.Family{
			Name: "reward_paused_runs",
			Type: obs.Gauge,
			Help: "Runs whose payment is paused, until it is retried.",
		},
		obs.Family{
			Name:   "quarantine_total",
			Type:   obs.Counter,
			Labels: []string{"epoch"},
			Help:   "Quarantined runs; epochs but the newest 64 count as older.",
		},
	)
	reg.Counter("busy_rejections_total", service, "endpoint", "compute") // counted by the HTTP frame
	return &metrics{
		canceled: reg.Counter("tasks_canceled_total", service, "kind", taskWorker),
		dropped:  reg.Counter("queue_dropped_total", service, "queue", "work"),
		lost:     reg.Counter("dropped_results_total", service),
		late:     reg.Counter("io_timeouts_total", service, "op", "compute"),
		quarantined: reg.Newest(flow.NewMutex(c, service, flow.RankCounters), maxEpochs, "quarantine_total", service,
			"epoch"),
	}
}
