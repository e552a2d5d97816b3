package dashboard

import (
	"fmt"
	"strings"
)

// rows returns the rows of the dashboard: the node, its database, then each service.
func rows() []row {
	return []row{
		nodeRow(), databaseRow(), registryRow(), walletRow(), ledgerRow(), rewarderRow(), edgeRow(), indexRow(),
		clusterRow(),
	}
}

// one returns a list of one query.
func one(expr, legend string) []query { return []query{{expr, legend}} }

// rateBy returns the rate of a counter, summed by labels.
func rateBy(series string, labels ...string) query {
	legend := "{{" + strings.Join(labels, "}} {{") + "}}"
	return query{fmt.Sprintf("sum by (%s) (rate(%s[$__rate_interval]))", strings.Join(labels, ", "), series), legend}
}

// total returns the rate of a counter over all selected nodes.
func total(series, legend string) query {
	return query{fmt.Sprintf("sum(rate(%s[$__rate_interval]))", series), legend}
}

// quantiles returns the quantiles of a histogram. matchers selects its series, and by, which may be
// empty, names a label that keeps them apart.
func quantiles(name, matchers, by string, of ...string) (out []query) {
	groups, legend := "le", ""
	if by != "" {
		groups, legend = "le, "+by, "{{"+by+"}} "
	}
	for _, q := range of {
		out = append(out, query{
			fmt.Sprintf("histogram_quantile(0.%s, sum by (%s) (rate(%s_bucket{%s}[$__rate_interval])))",
				q, groups, name, matchers),
			legend + "p" + q,
		})
	}
	return out
}

// traffic returns the panels that each service with routes begins with.
func traffic(service string) []panel {
	of := `service="` + service + `"`
	return []panel{
		{title: "Requests by status", unit: "reqps", stacked: true,
			queries: []query{rateBy("http_requests_total{"+of+"}", "status")}},
		{title: "Latency", unit: "s", queries: quantiles("request_latency_seconds", of, "", "50", "95", "99")},
		{title: "Refused requests by reason", unit: "reqps", stacked: true,
			about:   "`ronbox explain REASON` describes a reason.",
			queries: []query{rateBy("rejected_total{"+of+"}", "reason")}},
	}
}

// queues returns the fill of the queues of a service.
func queues(service string) panel {
	of := `{service="` + service + `"}`
	return panel{title: "Queues, filled part", unit: "percentunit", most: 1,
		about:   "A request that meets a full queue is answered 429 at once; nothing was done for it.",
		queries: one("max by (instance, queue) (queue_depth"+of+" / queue_capacity"+of+")", "{{instance}} {{queue}}")}
}

// states are the words for gauges that are 0 on a healthy node.
func states(good, bad string) map[int]word {
	return map[int]word{0: {good, "green"}, 1: {bad, "red"}}
}

func nodeRow() row {
	byNode := func(expr string) []query { return one("max by (instance) ("+expr+")", "{{instance}}") }
	return row{"Node", []panel{
		{title: "Readiness", kind: stat, wide: 6, words: states("ready", "degraded"),
			about:   "Degraded while a readiness key fails. `ronbox status` on the node shows the cause.",
			queries: byNode("readyz_degraded{}")},
		{title: "Up for", kind: stat, unit: "s", wide: 4,
			queries: byNode(`time() - process_start_time_seconds{service="node"}`)},
		{title: "Versions", kind: stat, wide: 4,
			queries: one("count by (version) (ronbox_build_info{})", "{{version}}")},
		{title: "Newest snapshot, age", kind: stat, unit: "s", wide: 4,
			about:   "The time since the start if no snapshot was taken. store.snapshot_every schedules them.",
			queries: byNode("backup_age_seconds{}")},
		{title: "Expires in", kind: stat, unit: "s", wide: 6,
			about: "The certificate in use and the long-lived token that expires next. No value: there is none.",
			queries: []query{
				{"min by (instance) (tls_certificate_expiry_seconds{} - time())", "{{instance}} certificate"},
				{"min by (instance) (auth_token_expiry_seconds{} - time())", "{{instance}} token"},
			}},
		{title: "Failing readiness keys", kind: table, wide: 12,
			about:   "Empty if all nodes are ready. `ronbox explain KEY` describes a key.",
			queries: one("max by (instance, service, cause) (readyz_degraded{}) == 1", "{{service}} {{cause}}")},
		{title: "Failing readiness keys by service", wide: 12,
			queries: one("sum by (instance, service) (readyz_degraded{})", "{{instance}} {{service}}")},
		{title: "Requests by service", unit: "reqps", stacked: true,
			queries: []query{rateBy("http_requests_total{}", "service")}},
		{title: "Requests by status", unit: "reqps", stacked: true,
			queries: []query{rateBy("http_requests_total{}", "status")}},
		{title: "Latency by service", unit: "s",
			queries: quantiles("request_latency_seconds", "", "service", "50", "99")},
		{title: "Refused requests by service and reason", unit: "reqps", stacked: true,
			about:   "All answers of 4xx and 5xx. `ronbox explain REASON` describes a reason.",
			queries: []query{rateBy("rejected_total{}", "service", "reason")}},
		{title: "Refused for load (429)", unit: "reqps", stacked: true,
			queries: []query{rateBy("busy_rejections_total{}", "service")}},
		{title: "The ten fullest queues", unit: "percentunit", most: 1,
			queries: one("topk(10, max by (instance, service, queue) (queue_depth{} / queue_capacity{}))",
				"{{instance}} {{service}} {{queue}}")},
		{title: "Dropped by queues and buses", unit: "cps",
			about: "Items that a full queue refused or evicted, and events that a slow subscriber missed.",
			queries: []query{
				rateBy("queue_dropped_total{}", "service"),
				{"sum by (service, bus) (rate(bus_lagged_total{}[$__rate_interval]))", "{{service}} bus {{bus}}"},
			}},
		{title: "Restarts and panics of tasks, in an hour",
			queries: []query{
				{"sum by (service) (increase(service_restarts_total{}[1h]))", "{{service}} restarts"},
				{"sum by (service) (increase(tasks_panicked_total{}[1h]))", "{{service}} panics"},
			}},
		{title: "Connections", queries: []query{
			{"sum by (instance, listener) (conns_open{})", "{{instance}} {{listener}}"},
			{"sum by (reason) (rate(conn_rejects_total{}[$__rate_interval]))", "refused per second: {{reason}}"},
		}},
		{title: "Deadlines that passed", unit: "cps", queries: []query{rateBy("io_timeouts_total{}", "service", "op")}},
		{title: "Refused tokens", unit: "cps", queries: []query{rateBy("auth_failures_total{}", "stage")}},
		{title: "Clock of the machine, ahead of the node's", unit: "s",
			about:   "0 unless one of them is wrong. `ronbox clock status` on the node shows which.",
			queries: one("max by (instance) (clock_offset_seconds{})", "{{instance}}")},
		{title: "CPU", unit: "percentunit", about: "1 is one core.",
			queries: one(`sum by (instance) (rate(process_cpu_seconds_total{service="node"}[$__rate_interval]))`,
				"{{instance}}")},
		{title: "Memory", unit: "bytes", about: "The resident memory includes mapped pages of the database file.",
			queries: []query{
				{`max by (instance) (process_resident_memory_bytes{service="node"})`, "{{instance}} resident"},
				{`max by (instance) (go_memstats_heap_inuse_bytes{service="node"})`, "{{instance}} heap"},
			}},
		{title: "Goroutines and open files", queries: []query{
			{`max by (instance) (go_goroutines{service="node"})`, "{{instance}} goroutines"},
			{`max by (instance) (process_open_fds{service="node"})`, "{{instance}} files"},
		}},
	}}
}

func databaseRow() row {
	return row{"Database", []panel{
		{title: "Storage", kind: stat, wide: 6, words: states("sound", "failed"),
			about:   "Failed after a write or a sync failed. The node ends with exit 74 and starts again from disk.",
			queries: one("max by (instance) (store_poisoned{})", "{{instance}}")},
		{title: "File, filled part", kind: stat, unit: "percentunit", wide: 6, bad: 0.9,
			queries: one("max by (instance) (store_used_bytes{} / store_max_bytes{})", "{{instance}}")},
		{title: "File full in", kind: stat, unit: "s", wide: 6,
			about: "If it grows as in the last hour.",
			queries: one("min by (instance) ((store_max_bytes{} - store_used_bytes{}) / "+
				"clamp_min(deriv(store_used_bytes{}[1h]), 1))", "{{instance}}")},
		{title: "Disk space above the reserve", kind: stat, unit: "bytes", wide: 6,
			queries: one("min by (instance) (store_disk_free_bytes{} - store_disk_reserve_bytes{})", "{{instance}}")},
		{title: "Commit latency", unit: "s", about: "One transaction, with its syncs.",
			queries: quantiles("store_commit_seconds", `phase="commit"`, "instance", "50", "99")},
		{title: "Commits by phase, 99 %", unit: "s",
			queries: quantiles("store_commit_seconds", "", "phase", "99")},
		{title: "Wait for the committer, 99 %", unit: "s",
			queries: quantiles("store_wait_seconds", "", "lane", "99")},
		{title: "Commands by result", unit: "cps", stacked: true,
			queries: []query{rateBy("store_commands_total{}", "result")}},
		{title: "Commits, and commands in each",
			queries: []query{
				total(`store_commit_seconds_count{phase="commit"}`, "commits per second"),
				{"sum(rate(store_batch_commands_sum{}[$__rate_interval])) / " +
					"sum(rate(store_batch_commands_count{}[$__rate_interval]))", "commands per commit"},
			}},
		queues("store"),
		{title: "File", unit: "bytes", queries: []query{
			{"max by (instance) (store_used_bytes{})", "{{instance}} used"},
			{"max by (instance) (store_bytes{})", "{{instance}} length"},
			{"max by (instance) (store_max_bytes{})", "{{instance}} limit"},
		}},
		{title: "Free disk space", unit: "bytes", queries: []query{
			{"min by (instance) (store_disk_free_bytes{})", "{{instance}} free"},
			{"min by (instance) (store_disk_reserve_bytes{})", "{{instance}} reserve"},
		}},
		{title: "Read transactions", queries: []query{
			{"sum by (instance) (store_read_tx_open{})", "{{instance}} open"},
			{"max by (instance) (store_read_tx_oldest_seconds{})", "{{instance}} oldest, seconds"},
		}},
	}}
}
