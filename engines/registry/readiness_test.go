package registry_test

import (
	"strings"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/registry"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/registrytest"
	"ronbox/engines/registry/tables"
)

func TestTopology(t *testing.T) {
	t.Parallel()
	r := registrytest.New(t)
	r.Catalog.DeclareTask(r.Engine.Tasks()...)
	if err := r.Catalog.Check(); err != nil && strings.Contains(err.Error(), "flow: registry.") {
		t.Error(err)
	}
	text := r.Catalog.Markdown()
	for _, name := range []string{"`proposals_tx` | queue | 512 | http", "`approvals_tx` | queue | 512 | http",
		"`committed_tx` | broadcast | 1024 | pipeline"} {
		if !strings.Contains(text, name) {
			t.Errorf("no %q in\n%s", name, text)
		}
	}
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	r := registrytest.New(t)
	at := time.Now()
	sample := func(n int) {
		for range n {
			at = at.Add(time.Second)
			r.Board.Sample(at)
		}
	}
	sample(1)
	if rep := r.Board.Report(tables.Service, ""); rep.Ready ||
		!strings.Contains(rep.Causes["registry.commit_ready"], document.CausePipelineDown) {
		t.Errorf("without a pipeline: %+v", rep)
	}
	r.Start()
	r.WaitFor("the pipeline",
		func() bool { return r.Board.Report(tables.Service, "").Causes["registry.commit_ready"] == "" })
	r.Attached()
	sample(8)
	if rep := r.Board.Report("", ""); !rep.Ready || rep.Degraded ||
		rep.Services[tables.Service].State != string(registry.StateNotBegun) {
		t.Errorf("before genesis: %+v", rep)
	}
	r.Genesis(newSigners(1, 1))
	sample(8)
	if rep := r.Board.Report(tables.Service, ""); !rep.Ready {
		t.Errorf("after genesis: %+v", rep)
	}
	r.Advance(-time.Hour)
	sample(8)
	if rep := r.Board.Report("", ""); !rep.WriteReady || !rep.ReadReady {
		t.Errorf("with a clock behind HEAD: %+v", rep)
	}
	if _, err := r.Engine.Propose(r.Ctx(), alice, delta(2, "b"), "", ""); err != nil {
		t.Errorf("propose with a clock behind HEAD: %v", err)
	}
}

// A registry without a genesis that was asked for degrades the node.
func TestMissingGenesisDegrades(t *testing.T) {
	t.Parallel()
	r := registrytest.New(t, func(c *registry.Config) { c.Bootstrap.TrustRootsHash = b3.Digest{1}.String() }).Start()
	r.Board.Sample(time.Now())
	if rep := r.Board.Report("", ""); !rep.Degraded || rep.Causes["registry.genesis"] != document.CauseNoGenesis ||
		rep.Services[tables.Service].State != "" {
		t.Errorf("%+v", rep)
	}
}

// Every family shows from the start, so that dashboards and alerts have their series.
func TestSeriesShowAtOnce(t *testing.T) {
	t.Parallel()
	r := registrytest.New(t)
	for _, name := range [][]string{
		{"queue_depth", "queue", "proposals"}, {"queue_depth", "queue", "approvals"},
		{"queue_dropped_total", "queue", "proposals"}, {"queue_dropped_total", "queue", "approvals"},
		{"busy_rejections_total", "endpoint", "propose"}, {"busy_rejections_total", "endpoint", "commit"},
		{"commit_cas_fail_total"}, {"io_timeouts_total", "op", "read"}, {"io_timeouts_total", "op", "write"},
		{"io_timeouts_total", "op", "commit"},
		{"backoff_retries_total", "op", "commit"}, {"backoff_retries_total", "op", "read"},
		{"storage_backoff_total", "op", "commit"},
		{"bus_lagged_total", "bus", "committed", "consumer", "publisher"},
		{"bus_lagged_total", "bus", "committed", "consumer", "deep_verifier"},
		{"tasks_canceled_total", "kind", "pipeline"}, {"registry_updates_total", "result", "superseded"},
		{"governance_proposals_total", "status", "expired"}, {"governance_approvals_total", "result", "duplicate"},
		{"governance_commits_total"},
		{"registry_head_version"}, {"registry_min_version"}, {"registry_log_segments"}, {"registry_storage_bytes"},
		{"registry_pending_proposals"},
		{"registry_deep_verified_version"}, {"registry_chain_errors_total"}, {"bus_overflow_dropped_total"},
		{"registry_recoveries_total", "kind", "crash"}, {"commit_latency_seconds"}, {"audit_chain_verify_seconds"},
		{"registry_approval_verify_seconds"},
	} {
		r.Metric(name[0], name[1:]...)
	}
}
