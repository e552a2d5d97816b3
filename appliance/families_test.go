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
