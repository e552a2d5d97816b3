package ledger

import (
	"ronbox/appliance/obs"
	"ronbox/engines/ledger/record"
)

// metrics are the ledger's series, resolved once, so that all of them show from the start.
type metrics struct {
	commits  func(int)
	latency  func(float64)
	accepted func(int)
	rejects  []func(int) // by record.Result
	gaps     func(int)
	safeMode func(float64)
	roots    func(int)
	batchOps func(float64)
	redo     func(float64)
	probes   func(int)
	closed   [closedKinds]func(int)
}

// What was asked for of a closed period.
const (
	closedReference = iota
	closedSettlement
	closedRecord
	closedKinds
)

var closedNames = [closedKinds]string{"reference", "settlement", "record"}

// refused counts an op that was refused by the rules.
func (m *metrics) refused(code record.Result) {
	m.rejects[code](1)
	if code == record.PeriodClosed {
		m.closed[closedReference](1)
	}
}

// doneInPeriod counts an op, or a settlement, that a closed period has done.
func (m *metrics) doneInPeriod(settle bool) {
	if settle {
		m.closed[closedSettlement](1)
		return
	}
	m.refused(record.PeriodClosed)
}

// latencySeconds are the buckets of what takes between a sync on a fast disk and the longest
// deadline.
var latencySeconds = [...]float64{.0002, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2, 5}

var opsBuckets = [...]float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192}

func ledgerFamilies() []obs.Family {
	return []obs.Family{
		{Name: "ledger_commits_total", Type: obs.Counter, Help: "Batches of the ledger that are in the file."},
		{
			Name:    "ledger_commit_latency_seconds",
			Type:    obs.Histogram,
			Buckets: latencySeconds[:],
			Help:    "Time from handing ops to the store to their sync, for each call.",
		},
		{Name: "ledger_backlog_gauge", Type: obs.Gauge, Help: "Calls under way that write."},
		{
			Name: "ledger_accepted_total",
			Type: obs.Counter,
			Help: "Ops that were written to the journal; repeated ones are not counted again.",
		},
		{
			Name:   "ledger_rejects_total",
			Type:   obs.Counter,
			Labels: []string{"reason"},
			Help:   "Ops refused by the rules.",
		},
		{
			Name: "ledger_seq_gap_detected_total",
			Type: obs.Counter,
			Help: "Times the journal was found not to follow itself: " +
				"a gap, a root, an image or a checksum that does not match.",
		},
		{
			Name: "ledger_safe_mode",
			Type: obs.Gauge,
			Help: "1 while nothing is written because the journal did not check.",
		},
		{Name: "ledger_roots_published_total", Type: obs.Counter, Help: "Roots of batches published."},
		{
			Name:    "ledger_batch_ops",
			Type:    obs.Histogram,
			Buckets: opsBuckets[:],
			Help:    "Ops of a call, refused ones included.",
		},
		{Name: "ledger_overlay_dirty", Type: obs.Gauge, Help: "Changed rows that wait to be written behind."},
		{
			Name: "ledger_cache_bytes",
			Type: obs.Gauge,
			Help: "Memory of names, accounts and balances; ledger.cache_bytes bounds it.",
		},
		{
			Name: "ledger_redo_seconds",
			Type: obs.Gauge,
			Help: "Time the last open took to redo the journal above what was written behind.",
		},
		{
			Name:   "idem_entries",
			Type:   obs.Gauge,
			Labels: []string{"tier"},
			Help:   "Idempotency keys kept: open in memory, sealed in the file.",
		},
		{Name: "idem_slots", Type: obs.Gauge, Help: "Slots of the idempotency index."},
		{
			Name: "idem_false_probes_total",
			Type: obs.Counter,
			Help: "Looks into a sealed slot in vain, which its filter let pass.",
		},
		{
			Name:   "ledger_period_closed_total",
			Type:   obs.Counter,
			Labels: []string{"what"},
			Help:   "Answers that lack what a closed period has: references, settlements, records.",
		},
		{Name: "holds_open", Type: obs.Gauge, Help: "Holds that are neither resolved nor expired."},
	}
}

func newMetrics(reg *obs.Metrics, l *Local) *metrics {
	reg.Declare(ledgerFamilies()...)
	m := &metrics{
		commits:  reg.Counter("ledger_commits_total", service),
		latency:  reg.Histogram("ledger_commit_latency_seconds", service),
		accepted: reg.Counter("ledger_accepted_total", service),
		rejects:  make([]func(int), record.LastResult+1),
		gaps:     reg.Counter("ledger_seq_gap_detected_total", service),
		safeMode: reg.Set("ledger_safe_mode", service),
		roots:    reg.Counter("ledger_roots_published_total", service),
		batchOps: reg.Histogram("ledger_batch_ops", service),
		redo:     reg.Set("ledger_redo_seconds", service),
		probes:   reg.Counter("idem_false_probes_total", service),
	}
	for i := range m.rejects {
		if r := record.Result(i); r.Refused() {
			m.rejects[r] = reg.Counter("ledger_rejects_total", service, "reason", r.String())
		}
	}
	for what, name := range closedNames {
		m.closed[what] = reg.CounterOnUse("ledger_period_closed_total", service, "what", name)
	}
	m.safeMode(0)
	m.redo(0)
	m.gauges(reg, l)
	return m
}

func (m *metrics) gauges(reg *obs.Metrics, l *Local) {
	gauge := func(name string, read func() int, pairs ...string) {
		reg.Gauge(name, service, func() float64 { return float64(read()) }, pairs...)
	}
	gauge("ledger_backlog_gauge", l.calls.len)
	gauge("ledger_overlay_dirty", l.books.dirty)
	gauge("ledger_cache_bytes", func() int { return int(l.books.inMemory()) })
	gauge("holds_open", func() int { return int(l.books.view.Load().OpenHolds) })
	gauge("idem_entries", func() int { return int(l.books.idem.Stats().Open) }, "tier", "open")
	gauge("idem_entries", func() int { return int(l.books.idem.Stats().Sealed) }, "tier", "sealed")
	gauge("idem_slots", func() int { s := l.books.idem.Stats(); return s.Slots + s.Runs })
}
