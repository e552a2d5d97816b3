package registry

import (
	"strings"

	"ronbox/appliance/obs"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/retain"
	"ronbox/engines/registry/seal"
	"ronbox/engines/registry/tables"
)

// metrics holds the series of the registry. All of them are created at the start, so that they
// show from then on.
type metrics struct {
	reg           *obs.Metrics
	timeouts      func(int) // of reads
	accepted      func(int)
	commits       func(int)
	recoveries    map[string]func(int)
	chainErrors   func(int)
	backoff       func(int) // reads refused for lack of a slot
	overflow      func(int)
	commitSeconds func(float64)
	auditSeconds  func(float64)
}

// latencySeconds are buckets from half a millisecond to the longest deadline.
var latencySeconds = [...]float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2, 5}

func registryFamilies() []obs.Family {
	return []obs.Family{
		{
			Name: "registry_updates_total", Type: obs.Counter, Labels: []string{"result"},
			Help: "Versions committed, requests for one refused by the pipeline, and versions superseded.",
		},
		{Name: "registry_pending_proposals", Type: obs.Gauge, Help: "Proposals that wait for signatures or a commit."},
		{
			Name: "registry_signers", Type: obs.Gauge, Labels: []string{"org"},
			Help: "Active signers in force, by realm.",
		},
		{
			Name: "commit_latency_seconds", Type: obs.Histogram, Buckets: latencySeconds[:],
			Help: "Time from handing a version's batch to the store to its sync, for each version.",
		},
		{
			Name: "audit_chain_verify_seconds", Type: obs.Histogram, Buckets: latencySeconds[:],
			Help: "Time of one slice of verification of the log.",
		},
		{
			Name: "registry_recoveries_total", Type: obs.Counter, Labels: []string{"kind"},
			Help: "Boots that read the log, after an orderly stop or a crash.",
		},
		{
			Name: "bus_overflow_dropped_total", Type: obs.Counter,
			Help: "Versions that the publisher could not send one by one.",
		},
		{Name: "registry_storage_bytes", Type: obs.Gauge, Help: "Stored bytes of log entries and payloads."},
		{Name: "registry_log_segments", Type: obs.Gauge, Help: "Segments of 256 versions in the log."},
		{Name: "registry_head_version", Type: obs.Gauge, Help: "Version of HEAD; 0 before genesis."},
		{Name: "registry_min_version", Type: obs.Gauge, Help: "Oldest version kept."},
		{Name: "registry_pruned_versions_total", Type: obs.Counter, Help: "Versions that retention has removed."},
		{Name: "registry_pruned_keys_total", Type: obs.Counter, Help: "Rows that retention has removed."},
		{
			Name: "registry_retention_skipped_total", Type: obs.Counter, Labels: []string{"reason"},
			Help: "Cycles of retention that were skipped.",
		},
		{
			Name: "registry_witness_total", Type: obs.Counter, Labels: []string{"result"},
			Help: "Witnesses asked to cosign a checkpoint, by result.",
		},
		{
			Name: "registry_witness_objections", Type: obs.Gauge,
			Help: "Witnesses that have seen another log under this name, and whose objection is not settled.",
		},
		{
			Name: "registry_deep_verified_version", Type: obs.Gauge,
			Help: "Version that the running pass of the deep verifier has reached.",
		},
		{Name: "registry_chain_errors_total", Type: obs.Counter, Help: "Faults found in the stored log."},
		{
			Name: "registry_approval_verify_seconds", Type: obs.Histogram,
			Buckets: latencySeconds[:], Help: "Time to verify one approval's signature.",
		},
		{
			Name: "registry_fork_guard", Type: obs.Gauge,
			Help: "1 while the log may not be extended: the file may be older than its log.",
		},
		{
			Name: "registry_checkpoint_age_seconds", Type: obs.Gauge,
			Help: "Age of the latest checkpoint; 0 before the first.",
		},
		{
			Name: "registry_checkpoint_interval_seconds", Type: obs.Gauge,
			Help: "Time after which an idle log is signed again: storage.checkpoint_interval.",
		},
		{
			Name: "registry_checkpoint_lag_versions", Type: obs.Gauge,
			Help: "Versions that the latest checkpoint does not cover.",
		},
	}
}

func governanceFamilies() []obs.Family {
	return []obs.Family{
		{
			Name: "governance_proposals_total", Type: obs.Counter, Labels: []string{"status"},
			Help: "Proposals by the state they entered.",
		},
		{
			Name: "governance_approvals_total", Type: obs.Counter, Labels: []string{"result"},
			Help: "Approvals by result.",
		},
		{Name: "governance_commits_total", Type: obs.Counter, Help: "Versions committed."},
	}
}

func newMetrics(reg *obs.Metrics, e *Engine) *metrics {
	reg.Declare(registryFamilies()...)
	reg.Declare(governanceFamilies()...)
	m := &metrics{
		reg:           reg,
		timeouts:      reg.Counter("io_timeouts_total", service, "op", "read"),
		accepted:      reg.Counter("registry_updates_total", service, "result", "accepted"),
		commits:       reg.Counter("governance_commits_total", service),
		recoveries:    series(reg, "registry_recoveries_total", "kind", "startup", "crash"),
		chainErrors:   reg.Counter("registry_chain_errors_total", service),
		backoff:       reg.Counter("storage_backoff_total", service, "op", "read"),
		overflow:      reg.Counter("bus_overflow_dropped_total", service),
		commitSeconds: reg.Histogram("commit_latency_seconds", service),
		auditSeconds:  reg.Histogram("audit_chain_verify_seconds", service),
	}
	reg.Counter("io_timeouts_total", service, "op", "write") // no write but a commit has a deadline
	// counted with the answer
	series(reg, "busy_rejections_total", "endpoint", "propose", "approve", "commit", "withdraw", "genesis")
	for _, consumer := range []string{taskPublisher, taskVerifier, seal.TaskCheckpointor} {
		reg.Counter("bus_lagged_total", service, "bus", "committed", "consumer", consumer) // counted by the bus
	}
	reg.Counter("bus_lagged_total", service, "bus", "updated", "consumer", "sse")
	m.gauges(e)
	return m
}

// series returns a counter for each value of a label.
func series(reg *obs.Metrics, family, label string, values ...string) map[string]func(int) {
	out := make(map[string]func(int), len(values))
	for _, v := range values {
		out[v] = reg.Counter(family, service, label, v)
	}
	return out
}

func (m *metrics) gauges(e *Engine) {
	for name, read := range map[string]func() float64{
		"registry_pending_proposals":     func() float64 { return float64(len(e.pub.State.Load().Live)) },
		"registry_storage_bytes":         func() float64 { return float64(e.pub.Tree.Load().Bytes) },
		"registry_log_segments":          func() float64 { return float64(segments(e.Head())) },
		"registry_head_version":          func() float64 { return float64(e.Head().Head.Version) },
		"registry_min_version":           func() float64 { return float64(e.Head().MinVersion) },
		"registry_deep_verified_version": func() float64 { return float64(e.verifiedTo.Load()) },
		"registry_checkpoint_lag_versions": func() float64 {
			return max(0, float64(e.Head().Head.Version)-float64(e.pub.Covered()))
		},
		"registry_checkpoint_interval_seconds": func() float64 {
			return e.live().Storage.CheckpointInterval.D().Seconds()
		},
		"registry_checkpoint_age_seconds": func() float64 {
			if s := e.pub.Latest.Load(); s != nil {
				return max(0, e.now().Sub(s.At).Seconds())
			}
			return 0
		},
	} {
		m.reg.Gauge(name, service, read)
	}
}

// segments returns the number of segments of the log, with those that are kept in part.
func segments(v *tables.HeadView) uint64 {
	return (v.Head.Version+retain.SegmentVersions-1)/retain.SegmentVersions - (max(v.MinVersion,
		1)-1)/retain.SegmentVersions
}

// maxOrgs bounds the label org. Further realms count as "other".
const maxOrgs = 64

// signers counts the signers in force.
func (m *metrics) signers(set *record.SignerSet) {
	if set == nil {
		return
	}
	byOrg := map[string]int{}
	for _, s := range set.Signers {
		org := orgOf(s.ID)
		if _, known := byOrg[org]; !known && len(byOrg) >= maxOrgs {
			org = "other"
		}
		if s.Status == record.StatusActive {
			byOrg[org]++
		} else {
			byOrg[org] += 0 // the series of an org without active keys stays, at 0
		}
	}
	for org, n := range byOrg {
		m.reg.Set("registry_signers", service, "org", org)(float64(n))
	}
}

// orgOf returns the realm of a signer id, "org:<realm>#<key>".
func orgOf(signerID string) string {
	realm, _, _ := strings.Cut(strings.TrimPrefix(signerID, "org:"), "#")
	return realm
}
