package period

import (
	"context"
	"sync"

	"ronbox/appliance/obs"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// State describes the closing under way, or the last one that failed.
type State struct {
	State  string // idle, building, exporting, checking, copying, closing, dropping, failed
	Period uint64
	ToSeq  uint64
	Done   uint64 // records of the step; parts of the file, or rows to be dropped
	Total  uint64
	File   string
	Error  string // of a closing that failed, or that waits
	Err    error  // of which Error is the text
}

const stateFailed = "failed"

// States returns the words for all states.
func States() []string {
	words := make([]string, 0, tables.Dropping+2)
	for step := tables.CloseStep(0); step <= tables.Dropping; step++ {
		words = append(words, step.String())
	}
	return append(words, stateFailed)
}

// State returns where the closing stands.
func (c *Closer) State() State {
	at := c.stage.Load()
	if f := c.failed.Load(); f != nil && f.waits == 0 && (at.step == 0 || at.step == tables.Dropping) {
		return State{State: stateFailed, Period: f.Period, File: f.File, Error: f.Err.Error(), Err: f.Err}
	}
	s := State{
		State: at.step.String(), Period: at.closing.Period, ToSeq: at.closing.Seq, File: at.closing.File.File,
		Done: at.done, Total: at.total,
	}
	if f := c.waits(&at.closing); f != nil && at.step == tables.Sealing {
		s.Error = f.Err.Error()
	}
	if at.step == tables.Dropping {
		s.Done, s.Total = min(at.closing.Dropped.Rows, at.closing.Rows), at.closing.Rows
	}
	return s
}

// waits returns why a closing waits, or nil.
func (c *Closer) waits(closing *tables.Closing) *Failure {
	if f := c.failed.Load(); f != nil && f.waits != 0 && f.waits == closing.Attempt {
		return f
	}
	return nil
}

// metrics are the series of a closer. Those of the states between idle and failed, and of the
// references, begin with the first closing, and that of canceled closings with the first of these:
// most nodes close nothing.
type metrics struct {
	of    *obs.Metrics
	c     *Closer
	begun sync.Once
}

// closed counts a closing that ended.
func (m *metrics) closed(result string) {
	m.of.Counter("ledger_closes_total", service, "result", result)(1)
}

// closing begins the series of the other states, and of what closed periods keep.
func (m *metrics) closing() {
	m.begun.Do(func() {
		words := States()
		m.show(words[1 : len(words)-1]...)
		m.of.Gauge("ledger_closed_references", service, func() float64 { return float64(m.c.used.Load()) })
	})
}

// show begins the series of states.
func (m *metrics) show(states ...string) {
	for _, state := range states {
		m.of.Gauge("ledger_close_state", service, func() float64 {
			if m.c.State().State == state {
				return 1
			}
			return 0
		}, "state", state)
	}
}

// Families returns the families of a closer.
func Families() []obs.Family {
	return []obs.Family{
		{
			Name: "ledger_horizon_seq", Type: obs.Gauge,
			Help: "Last record of the last closed period, 0 if no period is closed.",
		},
		{
			Name: "ledger_horizon_seconds", Type: obs.Gauge,
			Help: "Unix time of the last record of the last closed period.",
		},
		{
			Name: "ledger_close_state", Type: obs.Gauge, Labels: []string{"state"},
			Help: "1 for the state of the closing of a period.",
		},
		{
			Name: "ledger_close_records", Type: obs.Gauge, Labels: []string{"kind"},
			Help: "Records that the step of the closing has done, and their total.",
		},
		{
			Name: "ledger_close_due_seconds", Type: obs.Gauge,
			Help: "Unix time at which the next period is due to be closed by itself, 0: none.",
		},
		{
			Name: "ledger_closed_references", Type: obs.Gauge,
			Help: "References of closed periods, which are kept for ever.",
		},
		{
			Name: "ledger_closes_total", Type: obs.Counter, Labels: []string{"result"},
			Help: "Closings of a period that ended.",
		},
		{
			Name: "ledger_reclaim_bytes", Type: obs.Gauge,
			Help: "Bytes of rows of closed periods that are to be dropped, about; they count as free.",
		},
	}
}

func newMetrics(m *obs.Metrics, c *Closer) *metrics {
	if m == nil {
		m = obs.NewMetrics()
	}
	m.Declare(Families()...)
	out := &metrics{of: m, c: c}
	for _, result := range []string{"ok", "failed"} {
		m.Counter("ledger_closes_total", service, "result", result)
	}
	m.Gauge("ledger_horizon_seq", service, func() float64 { return float64(c.horizon.Load().Seq) })
	m.Gauge("ledger_horizon_seconds", service, func() float64 { return float64(c.horizon.Load().At) / 1e9 })
	m.Gauge("ledger_reclaim_bytes", service, func() float64 { return float64(c.Reclaimable()) })
	m.Gauge("ledger_close_records", service, func() float64 { return float64(c.State().Done) }, "kind", "done")
	m.Gauge("ledger_close_records", service, func() float64 { return float64(c.State().Total) }, "kind", "total")
	m.Gauge("ledger_close_due_seconds", service, func() float64 {
		if due := c.Due(); !due.IsZero() {
			return float64(due.UnixNano()) / 1e9
		}
		return 0
	})
	out.show(tables.CloseStep(0).String(), stateFailed)
	return out
}

// Listed is a closed period: its statement, and what else its row has.
type Listed struct {
	record.Statement
	Row tables.Period
}

// Horizon is the end of the last closed period, and how far rows up to there are dropped.
type Horizon struct {
	tables.Horizon
	DropSeq uint64 // records up to this are dropped
	Reclaim int64  // bytes that are still to be dropped, about
}

// Horizon returns the end of the last closed period; Period 0: there is none.
func (c *Closer) Horizon(ctx context.Context) (out Horizon, err error) {
	err = c.d.Store.View(ctx, func(r store.Reader) error {
		closing := tables.GetClosing(r)
		out = Horizon{Horizon: tables.GetHorizon(r), Reclaim: closing.Reclaimable()}
		out.DropSeq = out.Seq
		for seq := range tables.Raws(r, 0, out.Seq+1) {
			out.DropSeq = seq - 1
			break
		}
		return nil
	})
	return out, err
}

// Periods returns up to n closed periods after one.
func (c *Closer) Periods(ctx context.Context, after uint64, n int) (list []Listed, err error) {
	err = c.d.Store.View(ctx, func(r store.Reader) error {
		list = nil
		for period, row := range tables.Periods(r, after+1) {
			if len(list) == n {
				break
			}
			list = append(list, Listed{tables.StatementOf(r, period), row})
		}
		return nil
	})
	return list, err
}
