package edge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
)

// Event is something that has happened, for the log: live_fill, reject, cas_evict, quarantine or pack_state. What a kind does not have is zero.
type Event struct {
	Kind   string
	Of     string // the URL, the object or the pack
	Result string // of a fill, the reason of a refusal, the state of a pack
	Size   int64  // bytes
}

// metrics are the edge's series, resolved once, so that all of them show from the start.
type metrics struct {
	rejects  map[string]func(int)
	canceled func(int)
	damaged  map[string]func(int) // by kind
}

func newMetrics(reg *obs.Metrics, e *Engine) *metrics {
	reg.Declare(obs.Family{
		Name: "edge_rejects_total", Type: obs.Counter, Labels: []string{"reason"},
		Help: "Requests that were refused, by reason; rate_limit has those of a full queue and of too many in flight too.",
	})
	series := func(family, label string, values ...string) map[string]func(int) {
		out := make(map[string]func(int), len(values))
		for _, v := range values {
			out[v] = reg.Counter(family, service, label, v)
		}
		return out
	}
	reg.Declare(obs.Family{
		Name: "edge_damaged_total", Type: obs.Counter, Labels: []string{"kind"},
		Help: "Objects, packs and rows that were found damaged: by a read, by edge verify or by the scrub.",
	})
	m := &metrics{
		damaged: series("edge_damaged_total", "kind", "object", "pack", "row"),
		rejects: series("edge_rejects_total", "reason", "amnesia", "not_allowed", "decompress_cap", "body_cap", "timeout", "rate_limit", "invalid_range",
			"etag_invalid"),
		canceled: reg.Counter("tasks_canceled_total", service, "kind", taskWorker),
	}
	series("io_timeouts_total", "op", "connect", "fill", "read", "write") // counted by the origin and the front
	reg.Counter("backoff_retries_total", service, "op", "live_fill")
	reg.Counter("busy_rejections_total", service, "endpoint", "/edge/assets") // counted with the answer
	reg.Counter("bus_lagged_total", service, "bus", "events", "consumer", taskMetrics)
	reg.Gauge("worker_inflight", service, func() float64 { _, n := e.work.counts(); return float64(n) })
	gauge := func(name, help string, read func(tally) int64) {
		reg.Declare(obs.Family{Name: name, Type: obs.Gauge, Help: help})
		reg.Gauge(name, service, func() float64 { has, _ := e.room.held(); return float64(read(has)) })
	}
	gauge("edge_cas_bytes", "Bytes of the objects that are stored.", func(t tally) int64 { return t.bytes })
	gauge("edge_cas_objects", "Objects that are stored.", func(t tally) int64 { return t.objects })
	gauge("edge_cas_urls", "URLs that lead to objects that are stored.", func(t tally) int64 { return t.urls })
	return m
}

// Rejected counts a request that was refused, once, whoever refused it. Reasons that edge_rejects_total does not have are on the bus alone.
func (e *Engine) Rejected(reason string) {
	if count := e.m.rejects[reason]; count != nil {
		count(1)
	}
	e.events.Publish(Event{Kind: "reject", Result: reason})
}

// Readiness keys: all soft, since a host that fails, or a full disk, keeps nothing from being served that is there.
const (
	keyShedding = "shedding" // fills are let in
	keyWorkers  = "workers"  // all of them run
	keyStore    = "store"    // the content store takes objects
	keyPacks    = "packs"    // those that are there serve
	keyIntact   = "intact"   // no damage was found lately
)

// damageShown is how long readiness shows damage after it was found, long enough for an alert.
const damageShown = time.Hour

// damaged counts and logs something that was found damaged, of a kind of edge_damaged_total.
func (e *Engine) damaged(kind, what string) {
	e.m.damaged[kind](1)
	e.damage.Store(e.now().UnixNano())
	e.log.Error("damaged", "kind", kind, "what", what, "next", "look at the disk; ronbox edge verify reads all that is stored")
}

// intact returns an error while damage that was found lately is to be shown.
func (e *Engine) intact() error {
	at := e.damage.Load()
	if at == 0 || e.now().Sub(time.Unix(0, at)) >= damageShown {
		return nil
	}
	return fmt.Errorf("damage was found at %s: look at the log and the disk", time.Unix(0, at).UTC().Format(time.RFC3339))
}

// The bounds of shedding.
const (
	shedFor  = 500 * time.Millisecond // after the last fill that was refused
	shedFull = 0.9                    // of the queue
)

// probes are sampled by the task metrics, ten times a second.
func (e *Engine) probes() []obs.Probe {
	keys := []obs.Probe{
		{Service: service, Key: keyShedding, Func: e.shedding},
		{Service: service, Key: keyWorkers, Func: func() error {
			return failing(e.boot.Fill.Workers-int(e.workers.Load()), "workers do not run")
		}},
		{Service: service, Key: keyIntact, Func: e.intact},
		{Service: service, Key: keyPacks, Func: func() error { return failing(e.packs.Failed(), "packs are not served") }},
	}
	if !e.d.Amnesia {
		keys = append(keys, obs.Probe{Service: service, Key: keyStore})
	}
	return keys
}

func failing(n int, what string) error {
	if n <= 0 {
		return nil
	}
	return fmt.Errorf("%d %s", n, what)
}

// shedding says why fills are refused.
func (e *Engine) shedding() error {
	waiting, _ := e.work.counts()
	switch since := e.now().Sub(time.Unix(0, e.lastBusy.Load())); {
	case since < shedFor:
		return errors.New("fills are refused: the queue was full a moment ago")
	case float64(waiting) > shedFull*float64(e.work.cap):
		return fmt.Errorf("%d of %d places of the queue are taken", waiting, e.work.cap)
	}
	return nil
}

// relieveEvery is how many ticks lie between two looks at the free space of the disk: a second.
const relieveEvery = 10

// runMetrics samples readiness, writes the events to the log, and watches the free space of the disk.
func (e *Engine) runMetrics(ctx context.Context) error {
	sub := e.events.Subscribe(taskMetrics)
	defer sub.Close()
	defer e.sample.Stop()
	tick := e.sample.C()
	for n := 1; !sub.Closed(); {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick:
			e.d.Board.Sample(e.now())
			if n++; n%relieveEvery == 0 {
				e.relieve()
			}
		case <-sub.Ready():
			e.logEvents(sub)
		}
	}
	return nil
}

func (e *Engine) logEvents(sub *flow.Subscription[Event]) {
	for v, _, ok := sub.Next(); ok; v, _, ok = sub.Next() { // which tells of those that were lost
		level := hclog.Info
		if v.Kind == "reject" {
			level = hclog.Debug // a flood of them is not to flood the log
		}
		e.log.Log(level, v.Kind, "of", v.Of, "result", v.Result, "bytes", v.Size)
	}
}
