package registrytest

import (
	"time"

	dto "github.com/prometheus/client_model/go"

	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// Patience bounds the waits of tests. A busy machine is slow; only a fault takes this long.
const Patience = 2 * time.Minute

// WaitFor polls a condition that another goroutine makes true, in real time.
func (r *Rig) WaitFor(what string, ok func() bool) {
	r.T.Helper()
	deadline := time.NewTimer(Patience)
	defer deadline.Stop()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for !ok() {
		select {
		case <-pause.C:
			pause.Reset(2 * time.Millisecond)
		case <-deadline.C:
			r.T.Fatalf("waited %s for %s", Patience, what)
		}
	}
}

// Metric reads one series of the registry.
func (r *Rig) Metric(name string, pairs ...string) float64 {
	r.T.Helper()
	families, err := r.Metrics.Registry().Gather()
	if err != nil {
		r.T.Fatal(err)
	}
	want := map[string]string{"service": tables.Service}
	for i := 0; i < len(pairs); i += 2 {
		want[pairs[i]] = pairs[i+1]
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && Matches(m, want) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	r.T.Errorf("no series %s%v", name, want)
	return -1
}

// Matches reports whether a series has labels.
func Matches(m *dto.Metric, want map[string]string) bool {
	n := 0
	for _, l := range m.GetLabel() {
		if v, ok := want[l.GetName()]; ok && v == l.GetValue() {
			n++
		}
	}
	return n == len(want)
}

// LastAudit returns the last record of the audit chain.
func (r *Rig) LastAudit() *record.Audit {
	r.T.Helper()
	var raw []byte
	if err := r.Store.View(r.Ctx(), func(rd store.Reader) error {
		ref, _ := tables.MetaAudit.Get(rd, tables.KeyAuditHead)
		raw, _ = tables.Audits.Get(rd, ref.Seq)
		return nil
	}); err != nil {
		r.T.Fatal(err)
	}
	rec, err := record.ParseAudit(raw)
	if err != nil {
		r.T.Fatal(err)
	}
	return rec
}
