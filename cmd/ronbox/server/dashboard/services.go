package dashboard

import "slices"

func registryRow() row {
	return row{"Registry", slices.Concat([]panel{
		{title: "HEAD", kind: stat, wide: 6,
			queries: one("max by (instance) (registry_head_version{})", "{{instance}}")},
		{title: "Open proposals", kind: stat, wide: 6,
			queries: one("sum by (instance) (registry_pending_proposals{})", "{{instance}}")},
		{title: "Fork guard", kind: stat, wide: 6, words: states("open", "closed"),
			about:   "Closed while the file may be older than its log: the registry signs nothing.",
			queries: one("max by (instance) (registry_fork_guard{})", "{{instance}}")},
		{title: "Newest checkpoint, age", kind: stat, unit: "s", wide: 6,
			queries: one("max by (instance) (registry_checkpoint_age_seconds{})", "{{instance}}")},
	}, traffic("registry"), []panel{
		{title: "Versions by result", unit: "cps", queries: []query{rateBy("registry_updates_total{}", "result")}},
		{title: "Proposals and approvals", unit: "cps", queries: []query{
			{"sum by (status) (rate(governance_proposals_total{}[$__rate_interval]))", "proposals {{status}}"},
			{"sum by (result) (rate(governance_approvals_total{}[$__rate_interval]))", "approvals {{result}}"},
		}},
		{title: "Commit of a version", unit: "s", queries: quantiles("commit_latency_seconds", "", "", "50", "99")},
		{title: "Versions without a checkpoint",
			queries: one("max by (instance) (registry_checkpoint_lag_versions{})", "{{instance}}")},
		{title: "Witnesses and faults of the log", queries: []query{
			rateBy("registry_witness_total{}", "result"),
			{"max by (instance) (registry_witness_objections{})", "{{instance}} objections"},
			{"sum by (instance) (increase(registry_chain_errors_total{}[1h]))", "{{instance}} faults in an hour"},
		}},
		queues("registry"),
		{title: "Event streams", queries: one("sum by (instance) (registry_sse_clients{})", "{{instance}} clients")},
		{title: "Stored", unit: "bytes", queries: one("max by (instance) (registry_storage_bytes{})", "{{instance}}")},
	})}
}

func walletRow() row {
	return row{"Wallet", slices.Concat(traffic("wallet"), []panel{
		{title: "Requests by operation", unit: "reqps", stacked: true,
			queries: []query{rateBy("wallet_requests_total{}", "op")}},
		{title: "Refused payments by reason", unit: "cps", stacked: true,
			about:   "Requests, and operations of batches. `ronbox explain REASON` describes a reason.",
			queries: []query{rateBy("wallet_rejects_total{}", "reason")}},
		{title: "In progress", stacked: true, queries: one("sum by (op) (wallet_inflight{})", "{{op}}")},
		queues("wallet"),
		{title: "Calls of the ledger, 99 %", unit: "s",
			queries: quantiles("upstream_latency_seconds", `service="wallet",svc="ledger"`, "op", "99")},
		{title: "Calls of the ledger by outcome", unit: "cps", stacked: true,
			queries: []query{rateBy(`upstream_calls_total{service="wallet",svc="ledger"}`, "outcome")}},
		{title: "Repeated requests", unit: "cps",
			about: "Requests that were answered with the result of an earlier request with the same key.",
			queries: []query{
				total("wallet_idem_replays_total{}", "answered from the first"),
				total("wallet_nonce_conflicts_total{}", "nonce conflicts"),
			}},
		{title: "Balances by source", unit: "reqps", stacked: true,
			queries: []query{rateBy("balance_cache_total{}", "outcome")}},
		{title: "Breaker of the ledger opened, in an hour",
			queries: one(`sum by (instance) (increase(circuit_open_total{service="wallet"}[1h]))`, "{{instance}}")},
	})}
}

func ledgerRow() row {
	return row{"Ledger", []panel{
		{title: "Writes", kind: stat, wide: 6, words: states("taken", "safe mode"),
			about:   "In safe mode nothing is written, because the journal did not verify.",
			queries: one("max by (instance) (ledger_safe_mode{})", "{{instance}}")},
		{title: "Faults of the journal", kind: stat, wide: 6, bad: 1,
			queries: one("sum by (instance) (increase(ledger_seq_gap_detected_total{}[1h]))", "{{instance}}")},
		{title: "Open holds", kind: stat, wide: 6, queries: one("sum by (instance) (holds_open{})", "{{instance}}")},
		{title: "Start, time of the redo", kind: stat, unit: "s", wide: 6,
			queries: one("max by (instance) (ledger_redo_seconds{})", "{{instance}}")},
		{title: "Operations", unit: "ops", queries: []query{
			total("ledger_accepted_total{}", "accepted"),
			{"sum(rate(ledger_rejects_total{}[$__rate_interval]))", "refused"},
		}},
		{title: "Refused by rule", unit: "ops", stacked: true,
			queries: []query{rateBy("ledger_rejects_total{}", "reason")}},
		{title: "Commit latency", unit: "s",
			queries: quantiles("ledger_commit_latency_seconds", "", "", "50", "95", "99")},
		{title: "Operations per call, mean",
			queries: one("sum(rate(ledger_batch_ops_sum{}[$__rate_interval])) / "+
				"sum(rate(ledger_batch_ops_count{}[$__rate_interval]))", "operations")},
		{title: "Calls and rows that wait", queries: []query{
			{"sum by (instance) (ledger_backlog_gauge{})", "{{instance}} calls"},
			{"sum by (instance) (ledger_overlay_dirty{})", "{{instance}} rows not written behind"},
		}},
		{title: "Idempotency keys", queries: one("sum by (tier) (idem_entries{})", "{{tier}}")},
	}}
}

func rewarderRow() row {
	return row{"Rewarder", slices.Concat([]panel{
		{title: "Paused payments", kind: stat, wide: 8, bad: 1,
			about:   "Runs that wait for `ronbox rewarder retry EPOCH`.",
			queries: one("max by (instance) (reward_paused_runs{})", "{{instance}}")},
		{title: "Quarantined runs, in an hour", kind: stat, wide: 8, bad: 1,
			queries: one("sum by (instance) (increase(quarantine_total{}[1h]))", "{{instance}}")},
		{title: "Breaker of the ledger opened, in an hour", kind: stat, wide: 8, bad: 1,
			queries: one(`sum by (instance) (increase(circuit_open_total{service="rewarder"}[1h]))`, "{{instance}}")},
	}, traffic("rewarder"), []panel{
		queues("rewarder"),
		{title: "Retries", unit: "cps", queries: []query{rateBy(`backoff_retries_total{service="rewarder"}`, "op")}},
		{title: "Files that a stop cut off",
			about:   "The next start writes them.",
			queries: one("sum by (instance) (increase(dropped_results_total{}[1h]))", "{{instance}}")},
	})}
}

func edgeRow() row {
	return row{"Edge", slices.Concat(traffic("edge"), []panel{
		{title: "Served without a fetch", unit: "reqps", queries: []query{total("edge_hits_total{}", "answers")}},
		{title: "Refused by reason", unit: "reqps", stacked: true,
			queries: []query{rateBy("edge_rejects_total{}", "reason")}},
		{title: "Damage found, in an hour",
			queries: one("sum by (kind) (increase(edge_damaged_total{}[1h]))", "{{kind}}")},
		{title: "Content store", unit: "bytes", queries: []query{
			{"max by (instance) (edge_cas_bytes{})", "{{instance}} stored"},
			{"max by (instance) (edge_cas_pinned_bytes{})", "{{instance}} pinned"},
		}},
		{title: "Objects and URLs", queries: []query{
			{"max by (instance) (edge_cas_objects{})", "{{instance}} objects"},
			{"max by (instance) (edge_cas_urls{})", "{{instance}} URLs"},
			{"max by (instance) (edge_cas_pins{})", "{{instance}} pins"},
		}},
		queues("edge"),
		{title: "Fetching", queries: []query{
			{`sum by (instance) (worker_inflight{service="edge"})`, "{{instance}} workers"},
			total(`backoff_retries_total{service="edge"}`, "retries per second"),
		}},
	})}
}

func indexRow() row {
	return row{"Index", slices.Concat(traffic("index"), []panel{
		{title: "Lookups", unit: "s", about: "Answers from the cache included.",
			queries: quantiles("resolve_latency_seconds", "", "", "50", "95", "99")},
		{title: "Cache, part of hits", unit: "percentunit", most: 1,
			queries: one("sum(rate(index_cache_hits_total{}[$__rate_interval])) / "+
				"(sum(rate(index_cache_hits_total{}[$__rate_interval])) + "+
				"sum(rate(index_cache_misses_total{}[$__rate_interval])))", "hits")},
		{title: "Lookups among peers", unit: "ms", queries: quantiles("index_dht_lookup_ms", "", "", "50", "99")},
		{title: "Failed calls of peers", unit: "cps", stacked: true,
			queries: []query{rateBy("dht_errors_total{}", "kind")}},
		{title: "Second waves, stale answers, deadlines", unit: "cps", queries: []query{
			{"sum by (result) (rate(dht_hedged_requests_total{}[$__rate_interval]))", "second wave: {{result}}"},
			total("index_stale_served_total{}", "stale answers"),
			total("resolve_deadline_hit{}", "deadlines"),
		}},
		{title: "Refused records and conflicts, in an hour", queries: []query{
			{"sum(increase(index_integrity_fail_total{}[1h]))", "records of peers"},
			{"sum(increase(index_name_conflicts_total{}[1h]))", "name conflicts"},
			{"sum(increase(index_rows_corrupt_total{}[1h]))", "damaged rows"},
		}},
		queues("index"),
		{title: "Changes", unit: "cps", queries: []query{rateBy("index_events_total{}", "kind")}},
		{title: "Breakers of peers", stacked: true,
			about:   "Peers by the state of their breaker. Empty if index.peers is.",
			queries: one("sum by (state) (breaker_state{})", "{{state}}")},
	})}
}

func clusterRow() row {
	return row{"Cluster", []panel{
		{title: "Leads", kind: stat, wide: 6, about: "Only members of a cluster have the series of this row.",
			queries: one("max by (instance) (cluster_leader{})", "{{instance}}")},
		{title: "Voters that may fail", kind: stat, wide: 6,
			queries: one("max by (instance) (cluster_failure_tolerance{})", "{{instance}}")},
		{title: "Voters, healthy", kind: stat, wide: 6,
			queries: one("max by (instance) (cluster_voters_healthy{})", "{{instance}}")},
		{title: "Fit to lead", kind: stat, wide: 6, queries: one("max by (instance) (cluster_fit{})", "{{instance}}")},
		{title: "Term", queries: one("max by (instance) (cluster_term{})", "{{instance}}")},
		{title: "Entries behind", queries: one("max by (instance) (cluster_lag_entries{})", "{{instance}}")},
		{title: "Clock against the median", unit: "s",
			queries: one("max by (instance) (cluster_clock_skew_seconds{})", "{{instance}}")},
		{title: "From proposal to file", unit: "s", queries: quantiles("cluster_propose_seconds", "", "", "50", "99")},
		{title: "Elections, lost leases and transfers, in an hour", queries: []query{
			{"sum by (instance) (increase(cluster_elections_total{}[1h]))", "{{instance}} elections"},
			{"sum by (instance) (increase(cluster_leases_lost_total{}[1h]))", "{{instance}} leases lost"},
			{"sum by (instance) (increase(cluster_transfers_total{}[1h]))", "{{instance}} transfers"},
		}},
		{title: "Proposals that failed", unit: "cps",
			queries: []query{total("cluster_proposals_failed_total{}", "failed")}},
	}}
}
