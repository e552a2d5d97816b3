package registry

import (
	"strings"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/registry/document"
)

func TestTopology(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.catalog.DeclareTask(r.e.Tasks()...)
	if err := r.catalog.Check(); err != nil && strings.Contains(err.Error(), "flow: registry.") {
		t.Error(err)
	}
	text := r.catalog.Markdown()
	for _, name := range []string{"`proposals_tx` | queue | 512 | http", "`approvals_tx` | queue | 512 | http",
		"`committed_tx` | broadcast | 1024 | pipeline"} {
		if !strings.Contains(text, name) {
			t.Errorf("no %q in\n%s", name, text)
		}
	}
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	at := time.Now()
	sample := func(n int) {
		for range n {
			at = at.Add(time.Second)
			r.board.Sample(at)
		}
	}
	sample(1)
	if rep := r.board.Report(service, ""); rep.Ready ||
		!strings.Contains(rep.Causes["registry.commit_ready"], document.CausePipelineDown) {
		t.Errorf("without a pipeline: %+v", rep)
	}
	r.start()
	r.waitFor("the pipeline", func() bool { return r.e.running.Load() })
	r.attached()
	sample(8)
	if rep := r.board.Report("", ""); !rep.Ready || rep.Degraded ||
		rep.Services[service].State != string(StateNotBegun) {
		t.Errorf("before genesis: %+v", rep)
	}
	r.genesis(newSigners(1, 1))
	sample(8)
	if rep := r.board.Report(service, ""); !rep.Ready {
		t.Errorf("after genesis: %+v", rep)
	}
	r.advance(-time.Hour)
	sample(8)
	if rep := r.board.Report("", ""); !rep.WriteReady || !rep.ReadReady {
		t.Errorf("with a clock behind HEAD: %+v", rep)
	}
	if _, err := r.e.Propose(r.ctx(), alice, delta(2, "b"), "", ""); err != nil {
		t.Errorf("propose with a clock behind HEAD: %v", err)
	}
}

// A registry without a genesis that was asked for degrades the node.
func TestMissingGenesisDegrades(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.Bootstrap.TrustRootsHash = b3.Digest{1}.String() }).start()
	r.board.Sample(time.Now())
	if rep := r.board.Report("", ""); !rep.Degraded || rep.Causes["registry.genesis"] != document.CauseNoGenesis ||
		rep.Services[service].State != "" {
		t.Errorf("%+v", rep)
	}
}

// A queue that stays nearly full for five seconds makes the node write-unready; a short burst does
// not.
func TestQueuePressure(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.Queues.Proposals = 10 })
	for range 10 {
		if err := r.e.proposals.TrySend(
			&job{ctx: r.ctx(), reply: flow.NewReply[answer](), queued: r.now(), req: commitReq{}},
		); err != nil {
			t.Fatal(err)
		}
	}
	q, at := &queueWatch{e: r.e}, time.Now()
	if err := q.check(at); err != nil {
		t.Errorf("a burst: %v", err)
	}
	if err := q.check(at.Add(queueFullIn)); err == nil {
		t.Error("full for 5 s, and ready")
	}
	for range 5 {
		<-r.e.proposals.C()
	}
	if err := q.check(at.Add(2 * queueFullIn)); err != nil {
		t.Errorf("half full: %v", err)
	}
	r.e.running.Store(true)
	r.e.busySince.Store(at.Add(-maxOpAge - time.Second).UnixNano())
	if err := r.e.commitReady(q); err == nil {
		t.Error("an op in hand for 3 s, and ready")
	}
	r.e.running.Store(false)
	for range 5 {
		<-r.e.proposals.C()
	}
}

// Every family shows from the start, so that dashboards and alerts have their series.
func TestSeriesShowAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
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
		r.metric(name[0], name[1:]...)
	}
}
