package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"ronbox/appliance/host/hosttest"
	"ronbox/appliance/obs"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/engines"
	"ronbox/engines/archive"
	"ronbox/engines/cluster"
	"ronbox/httpapi/client"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
	"ronbox/store/storetest"
)

// The node reports its tasks, its open resources and its log.
func TestLiveView(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	c := r.socket()
	list, err := c.Tasks(t.Context())
	must(t, err)
	for _, want := range []string{"node.supervisor", "node.http", "node.admin_http", "node.reloader", "node.janitor",
		"node.health_gate",
		"node.log_writer", "store.committer", "registry.pipeline"} {
		if !slices.ContainsFunc(
			list.Tasks,
			func(i nodeapi.TaskInfo) bool { return i.Service+"."+i.Name == want && i.State == "running" },
		) {
			t.Errorf("%s does not run: %+v", want, list.Tasks)
		}
	}
	queues, err := c.Queues(t.Context())
	must(t, err)
	for _, want := range []string{"registry.cfg_reload_tx", "node.audit_tx", "node.cfg", "node.log",
		"registry.proposals_tx", "store.control"} {
		if !slices.ContainsFunc(
			queues.Queues,
			func(i nodeapi.QueueInfo) bool { return i.Service+"."+i.Name == want && i.Cap > 0 },
		) {
			t.Errorf("no %s in %+v", want, queues.Queues)
		}
	}
	r.mustPut(c, signer(t, cfg), 2, "x")
	stats, err := c.DBStats(t.Context())
	if err != nil || stats.Bytes == 0 || stats.Commands == 0 || len(stats.Buckets) < 5 {
		t.Errorf("%+v, %v", stats, err)
	}
	level, err := c.SetLogLevel(t.Context(), nodeapi.LogLevel{Level: "debug", Service: "registry"})
	if err != nil || level.Level != "debug" || r.levels.Level("registry") != "debug" || r.levels.Level("") != "info" {
		t.Errorf("%+v, %v", level, err)
	}
	if _, err := c.SetLogLevel(t.Context(), nodeapi.LogLevel{Level: "debug", Service: "nobody"}); problem(
		t,
		err,
	).Status != http.StatusBadRequest {
		t.Errorf("a service that is none: %v", err)
	}
	r.halt()
}

// The audit chain can be read in pages and followed live.
func TestAuditView(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	c, sub := r.socket(), r.SubscribeAudit("test")
	defer sub.Close()
	for range 3 {
		_, err := c.Mint(t.Context(), nodeapi.MintRequest{Sub: "me", Scopes: []string{"registry.propose"}})
		must(t, err)
	}
	all, err := c.Audit(t.Context(), 1, 100)
	if err != nil || all.First != 1 || int(all.Last) != len(all.Rows) || all.Head != all.Rows[len(all.Rows)-1].Hash ||
		all.Next != 0 {
		t.Fatalf("%+v, %v", all, err)
	}
	var paged []nodeapi.AuditRow
	for from := uint64(1); from != 0; {
		page, err := c.Audit(t.Context(), from, 2)
		must(t, err)
		paged, from = append(paged, page.Rows...), page.Next
	}
	if len(paged) != len(all.Rows) {
		t.Errorf("%d rows in pages, %d at once", len(paged), len(all.Rows))
	}
	for i, row := range paged[1:] {
		if row.Prev != paged[i].Hash {
			t.Errorf("row %d does not follow", row.Seq)
		}
	}
	for i := range 3 {
		row, _, err := sub.Recv(t.Context())
		want := all.Rows[len(all.Rows)-3+i]
		if err != nil || row.Seq != want.Seq || row.Hash != want.Hash {
			t.Errorf("live %+v, %v, want %+v", row, err, want)
		}
	}
	r.halt()
}

// An action outside the file writes an audit row that names the caller.
func TestNoteNamesTheActor(t *testing.T) {
	tx := storetest.NewTx(t, tokens.Bucket)
	uid := uint32(1000)
	by := engines.Actor{CapID: "01T", Principal: "ops", UID: &uid}
	if _, err := storetest.Do(
		tx,
		auditNote{tokens.AuditEvent("node.drain", by, "corr", map[string]string{"k": "v"})},
	); err != nil {
		t.Fatal(err)
	}
	rows, err := store.Audit(tx.Reader(), 0, 10)
	if err != nil || len(rows) != 1 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	want := store.Event{
		Event:     "node.drain",
		Decision:  "allow",
		CorrID:    "corr",
		CapID:     "01T",
		Principal: "ops",
		UID:       "1000",
	}
	got := rows[0].Event
	if got.Detail["k"] != "v" {
		t.Errorf("detail %v", got.Detail)
	}
	got.Detail = nil
	if got.Event != want.Event || got.CorrID != want.CorrID || got.CapID != want.CapID ||
		got.Principal != want.Principal ||
		got.UID != want.UID {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// An action writes its audit row even if the caller has disconnected.
func TestNoteOutlivesTheCaller(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := r.SetLogLevel(ctx, engines.Actor{}, "", nodeapi.LogLevel{Level: "off"})
	must(t, err)
	r.halt()
	if rows := auditRows(t, cfg); !slices.Contains(rows, "log.level_set") {
		t.Errorf("no row of the level in %v", rows)
	}
}

// A stream of the audit chain receives a row that is written while the stream is open.
func TestAuditRowsAreFollowed(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	known, heard, ended := make(chan struct{}, 64), make(chan struct{}), make(chan error, 1)
	c := r.socket()
	go func() {
		ended <- c.AuditStream(t.Context(), client.StreamOptions{LastEventID: "0"}, func(row nodeapi.AuditRow) error {
			known <- struct{}{}
			if row.Event != "log.level_set" {
				return nil
			}
			close(heard)
			return client.ErrStop
		})
	}()
	<-known // it follows
	_, err := r.SetLogLevel(t.Context(), engines.Actor{}, "", nodeapi.LogLevel{Level: "info"})
	must(t, err)
	select {
	case <-heard:
		must(t, <-ended)
	case <-time.After(patience):
		t.Error("no row of the new level")
	}
	r.halt()
}

// The audit chain records the caller and the correlation id of every action of an operator.
func TestAuditNamesWhoAsked(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	if _, err := r.socket().Snapshot(t.Context(), nodeapi.SnapshotRequest{Dir: t.TempDir()}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := r.socket().
		Mint(t.Context(), nodeapi.MintRequest{Sub: "me", Scopes: []string{"registry.propose"}}); err != nil {
		t.Fatal(err)
	}
	must(t, r.socket().Drain(t.Context(), "test"))
	r.halt()
	uid, asked := strconv.Itoa(os.Getuid()), map[string]bool{}
	for _, e := range auditEvents(t, cfg) {
		asked[e.Event] = e.UID == uid && e.CorrID != ""
	}
	for _, name := range []string{"db.snapshot", "auth.token_minted", "node.drain"} {
		if !asked[name] {
			t.Errorf("%s does not say who asked", name)
		}
	}
}

// With a collector configured, writes are traced. A stop sends the remaining spans and leaves no
// goroutine running.
func TestSpansReachTheCollector(t *testing.T) {
	var mu sync.Mutex
	var got []byte
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		mu.Lock()
		defer mu.Unlock()
		got = append(got, body...)
	}))
	defer collector.Close()
	cfg, _ := devConfig(t)
	cfg.OTel.Exporter, cfg.OTel.Endpoint = "otlp", collector.URL
	r := start(t, cfg)
	r.mustPut(r.socket(), signer(t, cfg), 2, "traced")
	r.halt()
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{"http.request", "store.commit", "service.version\x12\x06\n\x04test"} {
		if !bytes.Contains(got, []byte(want)) {
			t.Errorf("no %q arrived in %d bytes\n%s", want, len(got), r.log)
		}
	}
}

const goldenMetrics = "../../../testdata/golden/metrics.md"

// families returns the metric families of a new node with every service.
func families(t *testing.T) []obs.Family {
	t.Helper()
	n, err := New(config.Default(), Build{}, Options{})
	must(t, err)
	return n.metrics.Families()
}

// The golden file lists all metric families of the program.
func TestMetricsGolden(t *testing.T) {
	var b strings.Builder
	b.WriteString(
		"Every series has the label `service` beside those of its family; one that a service lacks is empty. A node " +
			"also shows\n" +
			"`go_*` and `process_*`, of the Go runtime and of the process, with `service=\"node\"`.\n\n" +
			"| Name | Type | Labels | Unit | Tells |\n| --- | --- | --- | --- | --- |\n",
	)
	for _, f := range families(t) {
		fmt.Fprintf(
			&b,
			"| `%s` | %s | %s | %s | %s |\n",
			f.Name,
			f.Type,
			cells(f.Labels),
			unitOf(f.Name),
			strings.ReplaceAll(f.Help, "|", `\|`),
		)
	}
	golden(t, goldenMetrics, b.String())
}

func cells(labels []string) string {
	if len(labels) == 0 {
		return "-"
	}
	return "`" + strings.Join(labels, "` `") + "`"
}

// unitOf returns the unit at the end of a name.
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

// A fresh node exports each metric in the concurrency document of the registry, with its labels.
// promtool reports no problem.
func TestFreshNodeShowsEveryMetric(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	r.scrape()
	// so that the second one shows a request
	r.await("it to be counted", func() bool { return r.metric("http_requests_total") > 0 })
	text := string(r.scrape())
	r.halt()
	for _, series := range []string{
		`queue_depth{queue="proposals",service="registry"}`, `queue_depth{queue="approvals",service="registry"}`,
		`queue_dropped_total{queue="proposals",service="registry"}`,
		`queue_dropped_total{queue="approvals",service="registry"}`,
		`busy_rejections_total{endpoint="propose",`, `busy_rejections_total{endpoint="approve",`,
		`tasks_spawned_total{kind="pipeline",service="registry"}`,
		`tasks_canceled_total{kind="pipeline",service="registry"}`,
		`tasks_panicked_total{kind="pipeline",service="registry"}`,
		`service_restarts_total{service="registry",task="pipeline"}`, `commit_cas_fail_total{service="registry"}`,
		`io_timeouts_total{op="read",`, `io_timeouts_total{op="write",`, `io_timeouts_total{op="commit",`,
		`backoff_retries_total{op=`, `bus_lagged_total{bus="`, `consumer="publisher"`, `consumer="deep_verifier"`,
		`registry_reload_success_total{`, `registry_reload_fail_total{`,
		`lifecycle_state{service="node",state="running"}`,
		`ronbox_build_info{`,
		`readyz_degraded{cause="commit_ready",service="registry"}`, `store_commit_seconds_bucket{`,
		`storage_backoff_total{`, `http_requests_total{`, `request_latency_seconds_bucket{`, `inflight_requests{`,
		`go_goroutines{`,
	} {
		if !strings.Contains(text, series) {
			t.Errorf("no %s in /metrics", series)
		}
	}
	t.Run("promtool", func(t *testing.T) { lint(t, []byte(text)) })
}

// mostSeries bounds the series of a node that nobody has asked yet: each costs its scraper memory.
const mostSeries = 900

// The series of a route are exported from its first request on.
func TestSeriesOfRoutesComeWithRequests(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	text := string(r.scrape())
	series := 0
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			series++
		}
	}
	if series > mostSeries {
		t.Errorf("%d series, want at most %d", series, mostSeries)
	}
	want := []string{
		`request_latency_seconds_count{method="GET",route="/v1/balance",service="wallet"} 1`,
		`inflight_requests{route="/v1/balance",service="wallet"} 0`,
		`http_requests_total{method="GET",route="/v1/balance",service="wallet",status="200"} 1`,
		`busy_rejections_total{endpoint="read",route="",service="wallet"} 0`,
	}
	for _, series := range want {
		if strings.Contains(text, series[:strings.IndexByte(series, ' ')]) {
			t.Errorf("%s is there before the request", series)
		}
	}
	if got := r.v1("GET", "/v1/balance?account=alice&asset=ron", "", ""); got.status != http.StatusOK {
		t.Errorf("a balance: %d", got.status)
	}
	for _, series := range want {
		r.await(series, func() bool { return strings.Contains(string(r.scrape()), series+"\n") })
	}
	r.halt()
}

// promisedName matches families with fixed names that promtool rejects: the names contain a type or
// a short unit, or lack a suffix that promtool requires.
var promisedName = regexp.MustCompile(`ledger_backlog_gauge|index_dht_lookup_ms|resolve_deadline_hit`)

// lint checks the exposition with promtool.
func lint(t *testing.T, text []byte) {
	t.Helper()
	tool := hosttest.Tool(t, "promtool", "prometheus")
	var kept bytes.Buffer
	for line := range bytes.Lines(text) {
		if !promisedName.Match(line) {
			kept.Write(line)
		}
	}
	cmd := exec.Command(tool, "check", "metrics")
	cmd.Stdin = &kept
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

// gathered returns the metric families of a scrape, by name.
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

// After a write, a refusal and a reload the node exports every family of the golden table.
func TestEveryFamilyShows(t *testing.T) {
	r, _ := reloadable(t)
	r.mustPut(r.socket(), signer(t, r.cfg), 2, "x")
	r.receipt("/v1/transfer", "k", pay("alice", "bob", "1", 1))
	if resp := r.raw("POST", "/registry/proposals", "{"); resp.StatusCode != 401 {
		t.Errorf("a write without a token: %d", resp.StatusCode)
	}
	if resp := r.raw("GET", "/resolve/name:none.example", ""); resp.StatusCode != 404 {
		t.Errorf("an unknown name: %d", resp.StatusCode)
	}
	_, err := r.socket().Snapshot(t.Context(), nodeapi.SnapshotRequest{Dir: t.TempDir()}, nil)
	must(t, err)
	_, err = r.socket().Reload(t.Context())
	must(t, err)
	// series for each of index.peers, of which this node has none, of tasks that a drain cuts off, of
	// closed periods, of a member of a cluster and of an archive
	others := []string{
		"breaker_open_total", "breaker_state", "index_dht_lookup_ms", "tasks_aborted_total",
		"ledger_closed_references", "ledger_period_closed_total",
	}
	for _, f := range slices.Concat(cluster.Families(), archive.Families()) {
		others = append(others, f.Name)
	}
	for _, want := range r.metrics.Families() {
		if !slices.Contains(others, want.Name) { // a request is counted shortly after its answer
			r.await(want.Name, func() bool { return r.gathered()[want.Name] != nil })
		}
	}
	r.halt()
}

// Every readiness key is a cause in the metrics, with its service as a label.
func TestReadinessKeysAreMetrics(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	r.sound()
	for _, want := range []struct{ service, key string }{
		{"node", "config_loaded"}, {"node", "listener_bound"}, {"node", "storage_ready"}, {"node", "metrics_live"},
		{"node", "accept_restore"}, {"node", "clock_ok"},
		{"registry", "commit_ready"}, {"registry", "bus_attached"}, {"registry", "genesis"},
		{"wallet", "cfg_loaded"}, {"wallet", "ledger_ready"}, {"wallet", "auth_ready"},
		{"wallet", "queue_ok"},
	} {
		if got := r.metric("readyz_degraded", "service", want.service, "cause", want.key); got != 0 {
			t.Errorf("%s.%s = %v on a sound node", want.service, want.key, got)
		}
		found := false
		for _, m := range r.gathered()["readyz_degraded"].GetMetric() {
			found = found ||
				slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == want.key })
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

// Each metric of the wallet's concurrency document has a series of the wallet, with the values of
// its labels that are named there, but for those of its routes and of tasks that a drain cuts off.
func TestTheWalletsSeriesShow(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	all := r.gathered()
	for _, want := range []string{
		"queue_depth queue=work", "queue_dropped_total queue=work", "queue_dropped_total queue=events",
		"tasks_spawned_total kind=worker", "tasks_canceled_total kind=worker",
		"io_timeouts_total op=read", "io_timeouts_total op=write", "io_timeouts_total op=connect",
		"io_timeouts_total op=ledger_rpc",
		"backoff_retries_total svc=ledger op=commit", "upstream_fail_total svc=ledger", "circuit_open_total svc=ledger",
		"worker_inflight",
	} {
		name, labels := seriesOf(want)
		if !has(all[name], append(labels, "service", "wallet")) {
			t.Errorf("no series %s of the wallet", want)
		}
	}
	for _, bus := range []string{"ledger", "audit"} {
		// a task subscribes a moment after its start
		r.await("bus_lagged_total of "+bus, func() bool {
			return has(r.gathered()["bus_lagged_total"], []string{"bus", bus})
		})
	}
	r.halt()
}

// has reports whether a family has a series with these labels, given as name and value.
func has(f *dto.MetricFamily, labels []string) bool {
	return slices.ContainsFunc(f.GetMetric(), func(m *dto.Metric) bool {
		for i := 0; i < len(labels); i += 2 {
			if !slices.ContainsFunc(
				m.GetLabel(),
				func(l *dto.LabelPair) bool { return l.GetName() == labels[i] && l.GetValue() == labels[i+1] },
			) {
				return false
			}
		}
		return true
	})
}
