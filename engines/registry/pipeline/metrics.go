package pipeline

import (
	"ronbox/appliance/obs"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/tables"
)

// metrics are the metrics of a Pipeline and its Writer.
type metrics struct {
	casFail         func(int)
	timeouts        func(int)
	canceled        func(int)
	backoff         func(int) // waits before a batch is built again
	rejected        func(int) // requests for a version
	superseded      func(int)
	proposals       map[string]func(int) // by state
	approvals       map[string]func(int) // accepted, rejected, duplicate
	approvalSeconds func(float64)
}

func newMetrics(reg *obs.Metrics) metrics {
	counter := func(family string, label ...string) func(int) { return reg.Counter(family, tables.Service, label...) }
	m := metrics{
		casFail:         counter("commit_cas_fail_total"),
		timeouts:        counter("io_timeouts_total", "op", "commit"),
		canceled:        counter("tasks_canceled_total", "kind", TaskName),
		backoff:         counter("storage_backoff_total", "op", "commit"),
		rejected:        counter("registry_updates_total", "result", "rejected"),
		superseded:      counter("registry_updates_total", "result", "superseded"),
		proposals:       map[string]func(int){},
		approvals:       map[string]func(int){},
		approvalSeconds: reg.Histogram("registry_approval_verify_seconds", tables.Service),
	}
	for _, state := range []string{
		document.StatePending, document.StateCommitted, document.StateExpired, document.StateStale,
		document.StateWithdrawn,
	} {
		m.proposals[state] = counter("governance_proposals_total", "status", state)
	}
	for _, result := range []string{approvalAccepted, approvalRejected, approvalDuplicate} {
		m.approvals[result] = counter("governance_approvals_total", "result", result)
	}
	return m
}

// counts are added to the metrics once the batch is in the file.
type counts struct {
	proposals  map[string]int // by the state entered
	approvals  map[string]int // by result
	superseded int            // by a committed version
	rejected   int            // requests for a version
}

// Results of an approval.
const (
	approvalAccepted  = "accepted"
	approvalRejected  = "rejected"
	approvalDuplicate = "duplicate"
)

// count counts a batch that is in the file.
func (m *metrics) count(c counts) {
	for state, n := range c.proposals {
		m.proposals[state](n)
	}
	m.superseded(c.superseded)
	m.rejected(c.rejected)
	for result, n := range c.approvals {
		m.approvals[result](n)
	}
}
