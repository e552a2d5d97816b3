package appliance

import (
	"slices"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"ronbox/httpapi/wire"
)

// gathered is what a scrape would show, by family.
func (r *rig) gathered() map[string]*dto.MetricFamily {
	r.t.Helper()
	all, err := r.metrics.Registry().Gather()
	must(r.t, err)
	out := map[string]*dto.MetricFamily{}
	for _, f := range all {
		out[f.GetName()] = f
	}
	return out
}

// After a write, a refusal and a reload every family of the golden table is there.
func TestEveryFamilyShows(t *testing.T) {
	r, _ := reloadable(t)
	r.mustPut(r.socket(), signer(t, r.cfg), 2, "x")
	r.receipt("/v1/transfer", "k", pay("alice", "bob", "1", 1))
	if resp := r.raw("POST", "/registry/proposals", "{"); resp.StatusCode != 401 {
		t.Errorf("a write without a token: %d", resp.StatusCode)
	}
	_, err := r.socket().Snapshot(t.Context(), wire.SnapshotRequest{Dir: t.TempDir()}, nil)
	must(t, err)
	_, err = r.socket().Reload(t.Context())
	must(t, err)
	got := r.gathered()
	for _, want := range r.metrics.Families() {
		if got[want.Name] == nil {
			t.Errorf("no %s", want.Name)
		}
	}
	r.halt()
}

// Whatever fails shows as a cause, by the service whose key it is.
func TestReadinessKeysAreMetrics(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	for _, want := range []struct{ service, key string }{
		{"node", "config_loaded"}, {"node", "listener_bound"}, {"node", "storage_ready"}, {"node", "metrics_live"}, {"node", "accept_restore"},
		{"registry", "commit_ready"}, {"registry", "bus_attached"}, {"registry", "genesis"},
		{"wallet", "cfg_loaded"}, {"wallet", "ledger_ready"}, {"wallet", "auth_ready"}, {"wallet", "policy_ready"}, {"wallet", "queue_ok"}, {"wallet", "clock_ok"},
	} {
		if got := r.metric("readyz_degraded", "service", want.service, "cause", want.key); got != 0 {
			t.Errorf("%s.%s = %v on a sound node", want.service, want.key, got)
		}
		found := false
		for _, m := range r.gathered()["readyz_degraded"].GetMetric() {
			found = found || slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == want.key })
		}
		if !found {
			t.Errorf("no series for %s.%s", want.service, want.key)
		}
	}
	r.escalated("registry", "publisher", true)
	if got := r.metric("readyz_degraded", "service", "registry", "cause", "task:publisher"); got != 1 {
		t.Errorf("task:publisher = %v", got)
	}
	r.halt()
}

// Each metric of the wallet's concurrency document has a series of the wallet, with the values of its labels that are named there.
func TestTheWalletsSeriesShow(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	all := r.gathered()
	for _, want := range []string{
		"queue_depth queue=work", "queue_dropped_total queue=work", "queue_dropped_total queue=events",
		"busy_rejections_total endpoint=transfer", "busy_rejections_total endpoint=issue", "busy_rejections_total endpoint=burn",
		"tasks_spawned_total kind=worker", "tasks_aborted_total kind=worker", "tasks_canceled_total kind=worker",
		"io_timeouts_total op=read", "io_timeouts_total op=write", "io_timeouts_total op=ledger_rpc",
		"backoff_retries_total svc=ledger op=commit", "upstream_fail_total svc=ledger", "circuit_open_total svc=ledger", "worker_inflight",
	} {
		name, labels := seriesOf(want)
		if !has(all[name], append(labels, "service", "wallet")) {
			t.Errorf("no series %s of the wallet", want)
		}
	}
	for _, bus := range []string{"ledger", "audit"} {
		if !has(all["bus_lagged_total"], []string{"bus", bus}) {
			t.Errorf("no bus_lagged_total of %s", bus)
		}
	}
	r.halt()
}

// has tells whether a family has a series with these labels, given as name and value.
func has(f *dto.MetricFamily, labels []string) bool {
	return slices.ContainsFunc(f.GetMetric(), func(m *dto.Metric) bool {
		for i := 0; i < len(labels); i += 2 {
			if !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == labels[i] && l.GetValue() == labels[i+1] }) {
				return false
			}
		}
		return true
	})
}
