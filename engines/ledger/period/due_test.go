package period_test

import (
	"fmt"
	"testing"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/unit"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/period"
	"ronbox/engines/ledger/record"
)

const day = 24 * time.Hour

// gauges returns the values of the gauges of a registry that have no labels but that of the service.
func gauges(t *testing.T, m *obs.Metrics) map[string]float64 {
	t.Helper()
	families, err := m.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		if one := f.GetMetric()[0]; len(f.GetMetric()) == 1 && one.GetGauge() != nil {
			out[f.GetName()] = one.GetGauge().GetValue()
		}
	}
	return out
}

// TestDue shows when the next period is due, and since when one is that is not closed. A node that
// begins with old records is not late at once.
func TestDue(t *testing.T) {
	n := newNode(t, 9)
	oldest := n.clock.Now()
	n.pay(5)
	metrics := obs.NewMetrics()
	cfg := period.Config{Dir: t.TempDir(), Retention: unit.Duration(7 * day), Period: unit.Duration(day)}
	c := period.NewCloser(cfg, period.Deps{
		Store: n.s, Ledger: n.l, Catalog: flow.NewCatalog(nil, nil), Now: n.clock.Now, Metrics: metrics,
		May: func() error { return period.ErrClock },
	})
	const family = "ledger_close_due_seconds"
	if due := gauges(t, metrics)[family]; due != 0 {
		t.Errorf("due is %f before it was looked for", due)
	}
	defer n.runs(c)()
	first := oldest.Add(8 * day)
	n.until(func() bool { return c.Due().Equal(first) })
	if got := gauges(t, metrics)[family]; got != float64(first.UnixNano())/1e9 {
		t.Errorf("%s is %f", family, got)
	}
	n.clock.Advance(20 * day)
	began := n.clock.Now()
	late := period.NewCloser(cfg, period.Deps{
		Store: n.s, Ledger: n.l, Catalog: flow.NewCatalog(nil, nil), Now: n.clock.Now,
		May: func() error { return period.ErrClock },
	})
	defer n.runs(late)()
	n.until(func() bool { return late.Due().Equal(began) })
	n.clock.Advance(4 * day)
	late.Reload(period.Config{})
	n.until(func() bool { return late.Due().IsZero() })
	if !c.Due().Equal(first) {
		t.Errorf("due is %s, and was %s", c.Due(), first)
	}
}

// TestClosedReferences counts the references of closed periods, also after a restart.
func TestClosedReferences(t *testing.T) {
	n := newNode(t, 10)
	dir, want := t.TempDir(), 0
	for round := range 2 {
		for i := range 3 + round {
			want++
			n.do(ledger.Op{
				Code: record.OpIssue, To: "bob", Asset: "ron", Amount: engines.AmountOf(0, 1),
				Principal: "shop", Reference: fmt.Sprint(round, "-", i),
			})
		}
		n.pay(5)
		n.clock.Advance(time.Hour)
		c, stop := n.closer(period.Config{Dir: dir})
		p, err := c.Close(t.Context(), period.Ask{Before: n.clock.Now(), Fast: true})
		n.must(err)
		n.until(func() bool { return n.horizon().Period == p.Period && c.State().State == "idle" })
		stop()
	}
	metrics := obs.NewMetrics()
	c := period.NewCloser(period.Config{Dir: dir}, period.Deps{
		Store: n.s, Ledger: n.l, Catalog: flow.NewCatalog(nil, nil), Now: n.clock.Now, Metrics: metrics,
	})
	const family = "ledger_closed_references"
	if _, shown := gauges(t, metrics)[family]; shown {
		t.Error("references are shown before it is known that a period is closed")
	}
	defer n.runs(c)()
	n.until(func() bool { return gauges(t, metrics)[family] == float64(want) })
}
