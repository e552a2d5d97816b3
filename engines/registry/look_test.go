package registry

import (
	"time"

	dto "github.com/prometheus/client_model/go"

	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// patience bounds the waits of tests. A busy machine is slow; only a fault takes this long.
const patience = 2 * time.Minute

// waitFor polls a condition that another goroutine makes true, in real time.
func (r *rig) waitFor(what string, ok func() bool) {
	r.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			r.t.Fatalf("waited %s for %s", patience, what)
		}
	}
}

// metric reads one series of the registry.
func (r *rig) metric(name string, pairs ...string) float64 {
	r.t.Helper()
	families, err := r.metrics.Registry().Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	want := map[string]string{"service": service}
	for i := 0; i < len(pairs); i += 2 {
		want[pairs[i]] = pairs[i+1]
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && matches(m, want) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	r.t.Errorf("no series %s%v", name, want)
	return -1
}

func matches(m *dto.Metric, want map[string]string) bool {
	n := 0
	for _, l := range m.GetLabel() {
		if v, ok := want[l.GetName()]; ok && v == l.GetValue() {
			n++
		}
	}
	return n == len(want)
}

func (r *rig) lastAudit() *record.Audit {
	r.t.Helper()
	var raw []byte
	if err := r.store.View(r.ctx(), func(rd store.Reader) error {
		ref, _ := tables.MetaAudit.Get(rd, tables.KeyAuditHead)
		raw, _ = tables.Audits.Get(rd, ref.Seq)
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
	rec, err := record.ParseAudit(raw)
	if err != nil {
		r.t.Fatal(err)
	}
	return rec
}
