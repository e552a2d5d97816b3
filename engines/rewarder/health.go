package rewarder

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
)

// Readiness keys. All are soft: the rest of the node serves on.
const (
	keyQueue    = "queue_ok"  // no queue is at 80 %
	keyLedger   = "ledger_ok" // the breaker is not open
	keyStore    = "store_ok"  // no run waits for the file, which is full or restored, and no damaged row was met
	keyArtifact = "artifact"  // the files of the last run were written
)

// runHealth sets the readiness keys.
func (e *Engine) runHealth(ctx context.Context) error {
	defer e.tick.Stop()
	for {
		e.board.Set(service, keyQueue, e.backpressure())
		e.board.Set(service, keyLedger, causeIf(e.calls.IsOpen(), "ledger_degraded"))
		e.board.Set(service, keyStore, cmp.Or(e.runs.trouble(), e.mend(ctx)))
		e.board.Set(service, keyArtifact, causeIf(e.unwrote.Load(), "the files of a run could not be written"))
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

// backpressure names a queue that is at 80 %.
func (e *Engine) backpressure() error {
	for name, n := range map[string]int{"work_req": e.requests.Len(), "work": e.todo[toCompute].Len(), "intents": e.todo[toPay].Len(), "results": e.todo[toWrite].Len()} {
		if n*10 >= queueCap*8 {
			return fmt.Errorf("backpressure: %s is at %d of %d", name, n, queueCap)
		}
	}
	return nil
}

// metrics are the series of the rewarder that flow does not count itself, resolved once.
type metrics struct {
	canceled    func(int)
	dropped     func(int) // of work
	lost        func(int) // results
	late        func(int)
	quarantined *obs.Newest // runs, by epoch
}

// maxEpochs is how many epochs quarantine_total names; the older ones are summed.
const maxEpochs = 64

func newMetrics(reg *obs.Metrics, c *flow.Catalog) *metrics {
	reg.Declare(
		obs.Family{Name: "dropped_results_total", Type: obs.Counter, Help: "Sealed runs whose files shutdown cut off; the next start writes them."},
		obs.Family{Name: "quarantine_total", Type: obs.Counter, Labels: []string{"epoch"}, Help: "Quarantined runs; epochs but the newest 64 count as older."},
	)
	reg.Counter("busy_rejections_total", service, "endpoint", "compute") // counted with the answer
	return &metrics{
		canceled: reg.Counter("tasks_canceled_total", service, "kind", taskWorker), dropped: reg.Counter("queue_dropped_total", service, "queue", "work"),
		lost: reg.Counter("dropped_results_total", service), late: reg.Counter("io_timeouts_total", service, "op", "compute"),
		quarantined: reg.Newest(flow.NewMutex(c, service, flow.RankCounters), maxEpochs, "quarantine_total", service, "epoch"),
	}
}
