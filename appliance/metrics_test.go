package appliance

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"ronbox/appliance/config"
	"ronbox/appliance/obs"
)

const goldenMetrics = "../testdata/golden/metrics.md"

// families are those of a node with every service, in which nothing has happened yet.
func families(t *testing.T) []obs.Family {
	t.Helper()
	n, err := New(config.Default(), Build{}, Options{})
	must(t, err)
	return n.metrics.Families()
}

// Whatever family the program gains, loses or changes shows in the golden file.
func TestMetricsGolden(t *testing.T) {
	var b strings.Builder
	b.WriteString("Every series has the label `service` beside those of its family; one that a service lacks is empty. A node also shows\n" +
		"`go_*` and `process_*`, of the Go runtime and of the process, with `service=\"node\"`.\n\n" +
		"| Name | Type | Labels | Unit | Tells |\n| --- | --- | --- | --- | --- |\n")
	for _, f := range families(t) {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", f.Name, f.Type, cells(f.Labels), unitOf(f.Name), strings.ReplaceAll(f.Help, "|", `\|`))
	}
	golden(t, goldenMetrics, b.String())
}

func cells(labels []string) string {
	if len(labels) == 0 {
		return "-"
	}
	return "`" + strings.Join(labels, "` `") + "`"
}

// unitOf is the unit that a name ends with.
func unitOf(name string) string {
	for _, unit := range []string{"seconds", "bytes"} {
		if strings.HasSuffix(strings.TrimSuffix(name, "_total"), "_"+unit) {
			return unit
		}
	}
	return "-"
}

// scrape reads /metrics of a node that has done nothing yet.
func (r *rig) scrape() []byte {
	r.t.Helper()
	tr := &http.Transport{DisableKeepAlives: true}
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://"+r.Addr()+"/metrics", nil)
	must(r.t, err)
	resp, err := tr.RoundTrip(req)
	must(r.t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	must(r.t, err)
	if resp.StatusCode != http.StatusOK {
		r.t.Fatalf("/metrics: %d %s", resp.StatusCode, body)
	}
	return body
}

// Each metric of the registry's concurrency document shows on a fresh node, with its labels, for the registry; what promtool
// says of all of them is nothing.
func TestFreshNodeShowsEveryMetric(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	r.scrape() // so that the second one shows a request
	text := string(r.scrape())
	r.halt()
	for _, series := range []string{
		`queue_depth{queue="proposals",service="registry"}`, `queue_depth{queue="approvals",service="registry"}`,
		`queue_dropped_total{queue="proposals",service="registry"}`, `queue_dropped_total{queue="approvals",service="registry"}`,
		`busy_rejections_total{endpoint="propose",`, `busy_rejections_total{endpoint="approve",`,
		`tasks_spawned_total{kind="pipeline",service="registry"}`, `tasks_aborted_total{kind="pipeline",service="registry"}`,
		`tasks_canceled_total{kind="pipeline",service="registry"}`, `tasks_panicked_total{kind="pipeline",service="registry"}`,
		`service_restarts_total{service="registry",task="pipeline"}`, `commit_cas_fail_total{service="registry"}`,
		`io_timeouts_total{op="read",`, `io_timeouts_total{op="write",`, `io_timeouts_total{op="commit",`,
		`backoff_retries_total{op=`, `bus_lagged_total{bus="`, `consumer="publisher"`, `consumer="deep_verifier"`,
		`registry_reload_success_total{`, `registry_reload_fail_total{`, `lifecycle_state{service="node",state="running"}`,
		`ronbox_build_info{`, `readyz_degraded{cause="commit_ready",service="registry"}`, `store_commit_seconds_bucket{`,
		`storage_backoff_total{`, `http_requests_total{`, `request_latency_seconds_bucket{`, `inflight_requests{`, `go_goroutines{`,
	} {
		if !strings.Contains(text, series) {
			t.Errorf("no %s in /metrics", series)
		}
	}
	lint(t, []byte(text))
}

// promtool is the path of Prometheus's tool, which CI has, or "".
func promtool(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err == nil {
		return path
	}
	if os.Getenv("CI") != "" {
		t.Error("CI has no promtool: install Debian's prometheus")
	}
	t.Log("promtool is not installed, nothing was asked of it")
	return ""
}

// lint hands the exposition to promtool.
func lint(t *testing.T, text []byte) {
	t.Helper()
	tool := promtool(t)
	if tool == "" {
		return
	}
	var kept bytes.Buffer
	for line := range bytes.Lines(text) {
		if !bytes.Contains(line, []byte("ledger_backlog_gauge")) { // a name that was promised, with its type in it
			kept.Write(line)
		}
	}
	cmd := exec.Command(tool, "check", "metrics")
	cmd.Stdin = &kept
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}
