package alerts_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ronbox/appliance/host/hosttest"
	"ronbox/cmd/ronbox/server/alerts"
)

// A row makes one alert fire once, by one of its causes, at a time and with series in promtool notation. {} stands for
// the labels of a scrape. The series of a row replace those of healthy. A new alert needs its rule,
// a row, and healthy values of its series.
type row struct {
	alert, at string
	series    map[string]string
}

func rows() []row {
	one := func(alert, at, series, values string) row { return row{alert, at, map[string]string{series: values}} }
	return []row{
		one("RonboxDown", "25h", `up{}`, "0x9999"), // it does not heal because the node's last answer was long ago
		one("RonboxAbsent", "6m", `node_load1{}`, "1x99"),
		one("RonboxCertificateExpires", "11m", `tls_certificate_expiry_seconds{service="node"}`, "1209000x400"),
		one("RonboxTokenExpires", "11m", `auth_token_expiry_seconds{service="node"}`, "259000x400"),
		one("RonboxRootKeyOverdue", "75m", `auth_root_key_due_seconds{service="node"}`, "100x400"),
		one("RonboxRestarts", "5m", `process_start_time_seconds{service="node"}`, "0x4 60x4 120x4 180x99"),
		one("RonboxUncleanStop", "1m", `registry_recoveries_total{service="registry", kind="crash"}`, "1x99"),
		one("RonboxNotReady", "3m", `readyz_degraded{service="wallet", cause="queue_ok"}`, "1x99"),
		one("RonboxPanic", "2m", `tasks_panicked_total{service="wallet", kind="worker"}`, "0x2 1x99"),
		one("RonboxClock", "2m", `clock_offset_seconds{service="node"}`, "0x2 -60x99"),
		one("RonboxStorageFailed", "1m", `store_poisoned{service="store"}`, "1x99"),
		one("RonboxStorageNotReady", "2m", `readyz_degraded{service="node", cause="storage_ready"}`, "1x99"),
		one("RonboxBackupOld", "11m", `backup_age_seconds{service="node"}`, "200000x99"),
		one("RonboxArchiveBehind", "6m", `archive_lag_seconds{service="archive"}`, "301x99"),
		one("RonboxArchiveStopped", "2m", `archive_state{service="archive", state="full"}`, "1x99"),
		one("RonboxLedgerClose", "62m", `ledger_close_state{service="ledger", state="failed"}`, "1x999"),
		one("RonboxLedgerClose", "73h", `ledger_close_due_seconds{service="ledger"}`, "1x19999"),
		one("RonboxArchiveBaseOld", "73h", `archive_base_due_seconds{service="archive"}`, "1x19999"),
		one("RonboxArchiveDrillOld", "11m", `archive_drill_success_seconds{node="a"}`, "-700000x99"),
		one("RonboxDiskFilling", "6m", `store_disk_free_bytes{service="store"}`, "500e6x99"),
		one("RonboxDiskFullSoon", "75m", `store_disk_free_bytes{service="store"}`, "10e9-5e6x999"),
		one("RonboxDatabaseFilling", "6m", `store_used_bytes{service="store"}`, "91e6x99"),
		one("RonboxQueueFilling", "2m", `queue_depth{service="wallet", queue="work"}`, "500x99"),
		one("RonboxQueueDrops", "8m", `queue_dropped_total{service="wallet", queue="work"}`, "0+5x99"),
		one(
			"RonboxBusy",
			"8m",
			`busy_rejections_total{service="wallet", endpoint="transfer", route="/v1/transfer"}`,
			"0+5x99",
		),
		one("RonboxLedgerSafeMode", "1m", `ledger_safe_mode{service="ledger"}`, "1x99"),
		one("RonboxLogFault", "1m", `ledger_seq_gap_detected_total{service="ledger"}`, "1x99"),
		one("RonboxLedgerStalled", "2m", `readyz_degraded{service="wallet", cause="ledger_ready"}`, "1x99"),
		one("RonboxBreakerOpened", "2m", `circuit_open_total{service="wallet", svc="ledger"}`, "0x2 1x99"),
		one("RonboxForkGuard", "1m", `registry_fork_guard{service="registry"}`, "1x99"),
		one("RonboxFollow", "3m", `readyz_degraded{service="registry", cause="follow_ok"}`, "1x99"),
		one("RonboxWitnessObjects", "1m", `registry_witness_objections{service="registry"}`, "1x99"),
		one("RonboxRewardPaused", "5m", `reward_paused_runs{service="rewarder"}`, "0x4 1x99"),
		one("RonboxLogKeyMissing", "2m", `readyz_degraded{service="registry", cause="log_key"}`, "1x99"),
		one("RonboxClusterNoLeader", "2m", `cluster_known_leader{service="cluster"}`, "1x2 0x99"),
		one("RonboxClusterUnfitLeader", "3m", `cluster_fit{service="cluster"}`, "1x2 0x99"),
		one("RonboxClusterDegraded", "4m", `cluster_voters_healthy{service="cluster"}`, "3x2 2x99"),
		one("RonboxClusterElections", "8m", `cluster_term{service="cluster"}`, "1+1x99"),
		one("RonboxClusterLag", "7m", `cluster_lag_entries{service="cluster"}`, "1001x99"),
		one("RonboxClusterCertificate", "11m", `cluster_certificate_expiry_seconds{service="cluster"}`, "1209000x400"),
		one("RonboxCheckpointOld", "6m", `registry_checkpoint_age_seconds{service="registry"}`, "2000+15x99"),
	}
}

// healthy returns the series of a node on which no alert fires. A series that is not listed is
// absent.
func healthy() map[string]string {
	out := map[string]string{
		`up{}`:                              "1x400",
		`ronbox_build_info{service="node"}`: "1x400",
		`process_start_time_seconds{service="node"}`:               "0x400",
		`store_disk_free_bytes{service="store"}`:                   "10e9x400",
		`store_disk_reserve_bytes{service="store"}`:                "268e6x400",
		`store_used_bytes{service="store"}`:                        "10e6x400",
		`store_max_bytes{service="store"}`:                         "100e6x400",
		`queue_depth{service="wallet", queue="work"}`:              "0x400",
		`queue_capacity{service="wallet", queue="work"}`:           "512x400",
		`backup_age_seconds{service="node"}`:                       "60x400",
		`backup_interval_seconds{service="node"}`:                  "86400x400",
		`tls_certificate_expiry_seconds{service="node"}`:           "9e9x400",
		`auth_token_expiry_seconds{service="node"}`:                "9e9x400",
		`auth_root_key_due_seconds{service="node"}`:                "9e9x400",
		`registry_checkpoint_interval_seconds{service="registry"}`: "600x400",
		`cluster_known_leader{service="cluster"}`:                  "1x400",
		`cluster_leader{service="cluster"}`:                        "1x400",
		`cluster_fit{service="cluster"}`:                           "1x400",
		`cluster_voters{service="cluster"}`:                        "3x400",
		`cluster_voters_healthy{service="cluster"}`:                "3x400",
		`cluster_certificate_expiry_seconds{service="cluster"}`:    "9e9x400",
		`registry_checkpoint_age_seconds{service="registry"}`:      "5x400",
	}
	for _, r := range rows() {
		for series := range r.series {
			if _, given := out[series]; !given {
				out[series] = "0x400"
			}
		}
	}
	return out
}

// group writes one promtool test.
func group(w *strings.Builder, name string, series map[string]string) {
	fmt.Fprintf(w, "  - name: %s\n    interval: 15s\n    input_series:\n", name)
	for _, s := range slices.Sorted(maps.Keys(series)) {
		labels := strings.Replace(s, "{", `{job="ronbox", instance="a", `, 1)
		fmt.Fprintf(w, "      - {series: '%s', values: '%s'}\n", strings.Replace(labels, ", }", "}", 1), series[s])
	}
	fmt.Fprint(w, "    promql_expr_test:\n")
}

// generated returns the promtool files with a test per row and a test of a healthy node. Rows of
// hours have a file of their own, because the rules of a file are evaluated at one interval.
func generated() map[string]string {
	minutes, hours := &strings.Builder{}, &strings.Builder{}
	fmt.Fprint(minutes, "rule_files: [alerts.yml]\nevaluation_interval: 15s\ntests:\n")
	fmt.Fprint(hours, "rule_files: [alerts.yml]\nevaluation_interval: 5m\ntests:\n")
	group(minutes, "healthy", healthy())
	for _, at := range []string{"1m", "15m", "75m"} {
		fmt.Fprintf(minutes, "      - {expr: 'ALERTS{alertstate=\"firing\"}', eval_time: %s, exp_samples: []}\n", at)
	}
	for _, r := range rows() {
		w := minutes
		if strings.HasSuffix(r.at, "h") {
			w = hours
		}
		series := r.series
		if r.alert != "RonboxAbsent" && r.alert != "RonboxDown" { // of those no other series is there
			series = healthy()
			maps.Copy(series, r.series)
		}
		group(w, r.alert, series)
		fmt.Fprintf(
			w,
			"      - {expr: 'count(ALERTS{alertname=\"%s\", alertstate=\"firing\"})', eval_time: %s, exp_samples: "+
				"[{labels: '{}', value: 1}]}\n",
			r.alert,
			r.at,
		)
	}
	return map[string]string{"minutes.yml": minutes.String(), "hours.yml": hours.String()}
}

// Each alert has a row in which it fires once. No alert fires on a healthy node.
func TestAlertsFireOnce(t *testing.T) {
	var have, want []string
	for _, r := range rows() {
		have = append(have, r.alert)
	}
	for _, a := range shipped() {
		want = append(want, a.name)
	}
	slices.Sort(have)
	slices.Sort(want)
	if have = slices.Compact(have); !slices.Equal(have, want) {
		t.Errorf("the rows are of %v\nwant some of each alert: %v", have, want)
	}
	tool := hosttest.Tool(t, "promtool", "prometheus")
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "alerts.yml"), []byte(alerts.Rules), 0o600))
	args := []string{"test", "rules"}
	for name, text := range generated() {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		args = append(args, name)
	}
	cmd := exec.CommandContext(t.Context(), tool, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%.4000s", err, out)
	}
}
