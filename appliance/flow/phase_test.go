package flow

import "testing"

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		Booting.String(): "booting", Recovering.String(): "recovering", Running.String(): "running", Degraded.String(): "degraded",
		Draining.String(): "draining", Aborting.String(): "aborting", Stopping.String(): "stopping", Stopped.String(): "stopped",
		Poisoned.String(): "poisoned", Phase(99).String(): "phase(99)",
		Always.String(): "always", OneShot.String(): "one-shot", Never.String(): "never", Restart(99).String(): "restart(99)",
		RankStateMeta.String(): "state_meta", RankRunRegistry.String(): "run_registry", RankRoutingTable.String(): "routing_table",
		RankFlights.String(): "flights", RankCacheMeta.String(): "cache_meta", RankBalanceCache.String(): "balance_cache",
		RankBreakerTable.String(): "breaker_table", RankCounters.String(): "counters", Rank(99).String(): "rank(99)",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
