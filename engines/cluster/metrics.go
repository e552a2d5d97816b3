package cluster

import (
	"context"

	"ronbox/appliance/obs"
)

// metrics holds the series of the cluster. Raft's own go to the default sink of go-metrics, which
// discards them.
type metrics struct {
	elections func(int)
	installed func(int)
	sent      func(int)
	failed    func(int)
	propose   func(float64)

	untransferred func(int)
}

// proposeSeconds are the histogram buckets of a group from its proposal to its commit.
var proposeSeconds = [...]float64{.0005, .001, .002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}

// Families returns the metric families of a member.
func Families() []obs.Family {
	return []obs.Family{
		{Name: "cluster_leader", Type: obs.Gauge, Help: "1 if this node leads, else 0."},
		{Name: "cluster_known_leader", Type: obs.Gauge, Help: "1 if this node knows a leader, else 0."},
		{Name: "cluster_fit", Type: obs.Gauge, Help: "1 if this node may stand for election, else 0."},
		{Name: "cluster_term", Type: obs.Gauge, Help: "Current term of the election."},
		{Name: "cluster_applied_index", Type: obs.Gauge, Help: "Index of the last log entry in the file."},
		{Name: "cluster_lag_entries", Type: obs.Gauge, Help: "Committed log entries that are not in the file."},
		// only the leader has these three
		{Name: "cluster_voters", Type: obs.Gauge, Help: "Members with a vote, at the leader."},
		{Name: "cluster_voters_healthy", Type: obs.Gauge, Help: "Voters that answer and may lead, at the leader."},
		{Name: "cluster_failure_tolerance", Type: obs.Gauge, Help: "Voters that may fail, at the leader."},
		{
			Name: "cluster_clock_skew_seconds",
			Type: obs.Gauge,
			Help: "The clock of this node minus the median of the members' clocks; 0 with fewer than three.",
		},
		{
			Name: "cluster_certificate_expiry_seconds",
			Type: obs.Gauge,
			Help: "Unix time at which the certificate of this node in the cluster expires.",
		},
		{
			Name: "cluster_leases_lost_total",
			Type: obs.Counter,
			Help: "Times that this node stopped leading because too few voters answered.",
		},
		{
			Name:   "cluster_transfers_total",
			Type:   obs.Counter,
			Labels: []string{"reason"},
			Help:   "Times that this node has transferred the leadership, by reason.",
		},
		{
			Name: "cluster_transfers_failed_total",
			Type: obs.Counter,
			Help: "Transfers of the leadership that the other member did not take.",
		},
		{Name: "cluster_elections_total", Type: obs.Counter, Help: "Elections that this node has won."},
		{Name: "cluster_installs_total", Type: obs.Counter, Help: "Files of a leader that were installed."},
		{
			Name: "cluster_files_sent_total",
			Type: obs.Counter,
			Help: "Files prepared for followers that were too far behind.",
		},
		{
			Name: "cluster_proposals_failed_total",
			Type: obs.Counter,
			Help: "Proposals that were refused or have an unknown outcome.",
		},
		{
			Name:    "cluster_propose_seconds",
			Type:    obs.Histogram,
			Buckets: proposeSeconds[:],
			Help:    "Time of a group from its proposal until it is in the file.",
		},
	}
}

func newMetrics(reg *obs.Metrics, n *Node) *metrics {
	reg.Declare(Families()...)
	gauge := func(name string, read func() float64) {
		reg.Gauge(name, service, func() float64 {
			if n.serving.Load() {
				return read()
			}
			return 0
		})
	}
	gauge("cluster_leader", func() float64 { return gaugeOf(n.Leads()) })
	gauge("cluster_known_leader", func() float64 {
		_, _, ok := n.Leader()
		return gaugeOf(ok)
	})
	gauge("cluster_fit", func() float64 { return gaugeOf(n.unfit() == "") })
	gauge("cluster_term", func() float64 { return float64(n.raft.CurrentTerm()) })
	gauge("cluster_applied_index", func() float64 { return float64(n.store.Applied().Index) })
	gauge("cluster_lag_entries", func() float64 { return float64(n.lag()) })
	gauge("cluster_clock_skew_seconds", func() float64 {
		ahead, _ := n.offset(n.deps.Origin())
		return ahead.Seconds()
	})
	reg.Gauge("cluster_certificate_expiry_seconds", service, func() float64 {
		return float64(n.deps.Self.NotAfter().Unix())
	})
	for _, why := range []Reason{ReasonAsked, ReasonDrain, ReasonUnfit} {
		reg.Counter("cluster_transfers_total", service, "reason", string(why))(n.deps.Earlier[why])
	}
	reg.Counter("cluster_leases_lost_total", service)(n.deps.Earlier[ReasonLease])
	return &metrics{
		elections: reg.Counter("cluster_elections_total", service),
		installed: reg.Counter("cluster_installs_total", service),
		sent:      reg.Counter("cluster_files_sent_total", service),
		failed:    reg.Counter("cluster_proposals_failed_total", service),
		propose:   reg.Histogram("cluster_propose_seconds", service),

		untransferred: reg.Counter("cluster_transfers_failed_total", service),
	}
}

// showOffice adds the series that only a leader has.
func (n *Node) showOffice() {
	gauge := func(name string, read func(Status) int) {
		n.deps.Metrics.Gauge(name, service, func() float64 { return float64(read(n.Status(context.Background()))) })
	}
	gauge("cluster_voters", func(s Status) int { return s.Voters })
	gauge("cluster_voters_healthy", func(s Status) int { return s.Healthy })
	gauge("cluster_failure_tolerance", func(s Status) int { return s.FailureTolerance })
}

// gaugeOf returns 1 if set is true, else 0.
func gaugeOf(set bool) float64 {
	if set {
		return 1
	}
	return 0
}
