package edge

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/fill"
	"ronbox/engines/edge/tables"
)

// metrics holds the series of the edge. They are resolved once, so that all of them exist from the
// start.
type metrics struct {
	hits    func(int)
	stale   func(int)
	rejects map[string]func(int)
	damaged map[string]func(int) // by kind
}

func newMetrics(reg *obs.Metrics, e *Engine) *metrics {
	reg.Declare(obs.Family{
		Name:   "edge_rejects_total",
		Type:   obs.Counter,
		Labels: []string{"reason"},
		Help:   "Refused requests, by reason; rate_limit includes a full queue and too many requests in flight.",
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
	reg.Declare(obs.Family{
		Name: "edge_hits_total", Type: obs.Counter,
		Help: "Answers with an asset or a tile that was not fetched for them.",
	})
	reg.Declare(obs.Family{
		Name: "edge_stale_hits_total", Type: obs.Counter,
		Help: "Answers with an object that was stale, because its host is asked later or was silent.",
	})
	m := &metrics{
		stale:   reg.Counter("edge_stale_hits_total", service),
		hits:    reg.Counter("edge_hits_total", service),
		damaged: series("edge_damaged_total", "kind", "object", "pack", "row"),
		rejects: series("edge_rejects_total", "reason", "amnesia", "not_allowed", "decompress_cap", "body_cap",
			"timeout", "rate_limit", "invalid_range", "etag_invalid"),
	}
	series("io_timeouts_total", "op", "connect", "fill", "read", "write") // counted by the origin and the front
	reg.Counter("backoff_retries_total", service, "op", "live_fill")
	reg.Counter("busy_rejections_total", service, "endpoint", "/edge/assets") // counted with the answer
	reg.Counter("bus_lagged_total", service, "bus", "events", "consumer", taskMetrics)
	gauge := func(name, help string, read func(tables.Tally) int64) {
		reg.Declare(obs.Family{Name: name, Type: obs.Gauge, Help: help})
		reg.Gauge(name, service, func() float64 { has, _ := e.content.Held(); return float64(read(has)) })
	}
	gauge("edge_cas_bytes", "Bytes of the objects that are stored.", func(t tables.Tally) int64 { return t.Bytes })
	gauge("edge_cas_objects", "Objects that are stored.", func(t tables.Tally) int64 { return t.Objects })
	gauge("edge_cas_pinned_bytes", "Bytes that pinned URLs lead to; an object counts for each of them.",
		func(t tables.Tally) int64 { return t.Pinned })
	gauge("edge_cas_pins", "URLs that are pinned.", func(t tables.Tally) int64 { return t.Pins })
	gauge("edge_cas_urls", "URLs that lead to objects that are stored.", func(t tables.Tally) int64 { return t.URLs })
	return m
}

// Hit counts an answer with an asset or a tile that was not fetched for it.
func (e *Engine) Hit() { e.m.hits(1) }

// Rejected counts a refused request, once. A reason without a series in edge_rejects_total is only
// published as an event.
func (e *Engine) Rejected(reason string) {
	if count := e.m.rejects[reason]; count != nil {
		count(1)
	}
	e.events.Publish(asset.Event{Kind: "reject", Result: reason})
}

// Readiness keys. All are soft: neither a failing host nor a full disk stops the edge from serving
// stored content.
const (
	keyShedding = "shedding" // fills are admitted
	keyWorkers  = "workers"  // all workers run
	keyStore    = "store"    // the content store accepts objects
	keyPacks    = "packs"    // all packs are served
	keyIntact   = "intact"   // no damage was found lately
)

// damageShown is how long readiness shows damage: long enough for an alert to fire.
const damageShown = time.Hour

// damaged counts and logs damage. kind is a label of edge_damaged_total.
func (e *Engine) damaged(kind, what string) {
	e.m.damaged[kind](1)
	e.damage.Store(e.now().UnixNano())
	e.log.Error("damaged", "kind", kind, "what", what, "next",
		"look at the disk; ronbox edge verify reads all that is stored")
}

// intact returns an error for damageShown after damage was found.
func (e *Engine) intact() error {
	at := e.damage.Load()
	if at == 0 || e.now().Sub(time.Unix(0, at)) >= damageShown {
		return nil
	}
	return fmt.Errorf("damage was found at %s: look at the log and the disk",
		time.Unix(0, at).UTC().Format(time.RFC3339))
}

// probes returns the readiness probes, which the task metrics samples ten times a second.
func (e *Engine) probes() []obs.Probe {
	keys := []obs.Probe{
		{Service: service, Key: keyShedding, Func: e.fills.Shedding},
		{Service: service, Key: keyWorkers, Func: func() error {
			return failing(e.fills.Missing(), "workers do not run")
		}},
		{Service: service, Key: keyIntact, Func: e.intact},
		{
			Service: service,
			Key:     keyPacks,
			Func:    func() error { return failing(e.packs.Failed(), "packs are not served") },
		},
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

// Times between two looks.
const (
	evictEvery = time.Second     // at the free space of the disk
	healEvery  = 5 * time.Second // at a failed content store, which writes to the disk
)

// runMetrics samples readiness, logs events and watches the free space of the disk. It samples once
// a second while there is no event and no fill.
func (e *Engine) runMetrics(ctx context.Context) error {
	sub := e.events.Subscribe(taskMetrics)
	defer sub.Close()
	defer e.logEvents(sub) // those before the end
	defer e.sample.Stop()
	tick, evicted, healed := e.sample.C(), time.Now(), time.Now()
	for !sub.Closed() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case now := <-tick:
			e.d.Board.Sample(e.now())
			if now.Sub(evicted) >= evictEvery {
				evicted = now
				e.fills.Expire()
				e.content.EvictForDisk()
			}
			if now.Sub(healed) >= healEvery {
				healed = now
				e.content.HealSoon()
			}
			if e.fills.Load() == (fill.Load{}) {
				e.sample.Rest()
			}
		case <-sub.Ready():
			e.sample.Wake()
			e.logEvents(sub)
		}
	}
	return nil
}

// logEvents logs the events that sub has.
func (e *Engine) logEvents(sub *flow.Subscription[asset.Event]) {
	for v, _, ok := sub.Next(); ok; v, _, ok = sub.Next() { // Next also reports lost events
		level := hclog.Info
		if v.Kind == "reject" {
			level = hclog.Debug // so that a flood of refusals does not fill the log
		}
		e.log.Log(level, v.Kind, "of", v.Of, "result", v.Result, "bytes", v.Size)
	}
}
