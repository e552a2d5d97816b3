package appliance

import (
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"ronbox/httpapi/wire"
)

// families are the metrics that every node has, with their types and labels; beside these every series has service.
var families = []struct {
	name   string
	kind   dto.MetricType
	labels string
}{
	{"queue_depth", dto.MetricType_GAUGE, "queue"},
	{"queue_dropped_total", dto.MetricType_COUNTER, "queue"},
	{"busy_rejections_total", dto.MetricType_COUNTER, "endpoint route"},
	{"tasks_spawned_total", dto.MetricType_COUNTER, "kind"},
	{"tasks_aborted_total", dto.MetricType_COUNTER, "kind"},
	{"tasks_canceled_total", dto.MetricType_COUNTER, "kind"},
	{"tasks_panicked_total", dto.MetricType_COUNTER, "kind"},
	{"service_restarts_total", dto.MetricType_COUNTER, "task"},
	{"io_timeouts_total", dto.MetricType_COUNTER, "op peer"},
	{"backoff_retries_total", dto.MetricType_COUNTER, "op svc"},
	{"bus_lagged_total", dto.MetricType_COUNTER, "bus consumer"},
	{"readyz_degraded", dto.MetricType_GAUGE, "cause"},
	{"commit_cas_fail_total", dto.MetricType_COUNTER, ""},
	{"storage_backoff_total", dto.MetricType_COUNTER, "op"},
	{"registry_reload_success_total", dto.MetricType_COUNTER, "source"},
	{"registry_reload_fail_total", dto.MetricType_COUNTER, "reason"},
	{"http_requests_total", dto.MetricType_COUNTER, "method route status"},
	{"request_latency_seconds", dto.MetricType_HISTOGRAM, "method route"},
	{"inflight_requests", dto.MetricType_GAUGE, "route"},
	{"rejected_total", dto.MetricType_COUNTER, "reason"},
	{"auth_failures_total", dto.MetricType_COUNTER, "scope stage surface"},
	{"tls_handshake_failures_total", dto.MetricType_COUNTER, ""},
	{"amnesia_mode", dto.MetricType_GAUGE, "status"},
	{"amnesia_purge_total", dto.MetricType_COUNTER, "kind"},
	{"store_commit_seconds", dto.MetricType_HISTOGRAM, "phase"},
	{"store_batch_commands", dto.MetricType_HISTOGRAM, ""},
	{"store_wait_seconds", dto.MetricType_HISTOGRAM, "lane"},
	{"store_commands_total", dto.MetricType_COUNTER, "kind result"},
	{"store_command_panics_total", dto.MetricType_COUNTER, "kind"},
	{"store_bytes", dto.MetricType_GAUGE, ""},
	{"store_pages", dto.MetricType_GAUGE, "state"},
	{"store_read_tx_open", dto.MetricType_GAUGE, ""},
	{"store_read_tx_oldest_seconds", dto.MetricType_GAUGE, ""},
	{"store_poisoned", dto.MetricType_GAUGE, ""},
	{"store_snapshot_seconds", dto.MetricType_HISTOGRAM, ""},
	{"lifecycle_state", dto.MetricType_GAUGE, "state"},
	{"config_version", dto.MetricType_GAUGE, ""},
	{"conns_open", dto.MetricType_GAUGE, "listener"},
	{"conn_rejects_total", dto.MetricType_COUNTER, "reason"},
	{"ronbox_build_info", dto.MetricType_GAUGE, "commit go version"},
	{"upstream_fail_total", dto.MetricType_COUNTER, "svc"},
	{"upstream_calls_total", dto.MetricType_COUNTER, "op outcome svc"},
	{"upstream_latency_seconds", dto.MetricType_HISTOGRAM, "op svc"},
	{"circuit_open_total", dto.MetricType_COUNTER, "svc"},
	{"worker_inflight", dto.MetricType_GAUGE, ""},
	{"wallet_requests_total", dto.MetricType_COUNTER, "op"},
	{"wallet_rejects_total", dto.MetricType_COUNTER, "reason"},
	{"wallet_idem_replays_total", dto.MetricType_COUNTER, ""},
	{"wallet_inflight", dto.MetricType_GAUGE, "op"},
	{"wallet_nonce_conflicts_total", dto.MetricType_COUNTER, ""},
	{"wallet_conservation_checks_total", dto.MetricType_COUNTER, "outcome"},
	{"balance_cache_total", dto.MetricType_COUNTER, "outcome"},
	{"ledger_commits_total", dto.MetricType_COUNTER, ""},
	{"ledger_commit_latency_seconds", dto.MetricType_HISTOGRAM, ""},
	{"ledger_backlog_gauge", dto.MetricType_GAUGE, ""},
	{"ledger_rejects_total", dto.MetricType_COUNTER, "reason"},
	{"ledger_seq_gap_detected_total", dto.MetricType_COUNTER, ""},
	{"ledger_safe_mode", dto.MetricType_GAUGE, ""},
	{"ledger_roots_published_total", dto.MetricType_COUNTER, ""},
	{"ledger_batch_ops", dto.MetricType_HISTOGRAM, ""},
	{"ledger_overlay_dirty", dto.MetricType_GAUGE, ""},
	{"ledger_redo_seconds", dto.MetricType_GAUGE, ""},
	{"idem_entries", dto.MetricType_GAUGE, "tier"},
	{"idem_slots", dto.MetricType_GAUGE, ""},
	{"idem_false_probes_total", dto.MetricType_COUNTER, ""},
	{"holds_open", dto.MetricType_GAUGE, ""},
	{"go_goroutines", dto.MetricType_GAUGE, ""},
	{"process_open_fds", dto.MetricType_GAUGE, ""},
}

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

// After a write, a refusal and a reload every family is there, of its type, with its labels and no others.
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
	for _, want := range families {
		f := got[want.name]
		if f == nil {
			t.Errorf("no %s", want.name)
			continue
		}
		if f.GetType() != want.kind {
			t.Errorf("%s is a %v, want %v", want.name, f.GetType(), want.kind)
		}
		for _, m := range f.GetMetric() {
			if labels := names(m.GetLabel()); labels != want.labels {
				t.Errorf("%s has the labels %q, want %q", want.name, labels, want.labels)
				break
			}
		}
	}
	r.halt()
}

// names lists the labels of a series but for service, which it must have.
func names(pairs []*dto.LabelPair) string {
	var out []string
	for _, p := range pairs {
		out = append(out, p.GetName())
	}
	at := slices.Index(out, "service")
	if at < 0 {
		return "no service"
	}
	return strings.Join(slices.Delete(out, at, at+1), " ")
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
