package wallet

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/unit"
	"ronbox/engines"
)

// bound holds the lowest and highest valid value of a key, in the unit of the key. set changes the
// key without making any other key invalid.
type bound struct {
	lo, hi int64
	set    func(c *Config, v int64)
}

// lasts returns the bound of a duration.
func lasts(lo, hi time.Duration, set func(c *Config, d unit.Duration)) bound {
	return bound{int64(lo), int64(hi), func(c *Config, v int64) { set(c, unit.Duration(v)) }}
}

// numbers returns the bound of a count.
func numbers(lo, hi int64, set func(c *Config, n int)) bound {
	return bound{lo, hi, func(c *Config, v int64) { set(c, int(v)) }}
}

// bounds returns the bounds of all keys with a numeric range.
func bounds() map[string]bound {
	const ms, minute = time.Millisecond, time.Minute
	return map[string]bound{
		"workers":                numbers(0, 64, func(c *Config, n int) { c.Workers = n }),
		"worker_burst":           numbers(1, 1024, func(c *Config, n int) { c.WorkerBurst = n }),
		"limits.max_inflight":    numbers(513, 65_536, func(c *Config, n int) { c.Limits.MaxInflight = n }),
		"limits.rate_per_second": numbers(1, 1_000_000, func(c *Config, n int) { c.Limits.RatePerSecond = n }),
		"limits.read_rps":        numbers(0, 1_000_000, func(c *Config, n int) { c.Limits.ReadRPS = n }),
		"limits.burst":           numbers(1, 1_000_000, func(c *Config, n int) { c.Limits.Burst = n }),
		// rpc_timeout is 1 s
		"req_timeout":     lasts(time.Second, minute, func(c *Config, d unit.Duration) { c.ReqTimeout = d }),
		"drain_deadline":  lasts(time.Second, 5*time.Second, func(c *Config, d unit.Duration) { c.DrainDeadline = d }),
		"idempotency_ttl": lasts(minute, 72*time.Hour, func(c *Config, d unit.Duration) { c.IdempotencyTTL = d }),
		"nonce_start":     {1, 1, func(c *Config, v int64) { c.NonceStart = uint64(v) }},
		"shards":          numbers(1, 1024, func(c *Config, n int) { c.Shards = n }),
		"batch_max_ops":   numbers(1, 4096, func(c *Config, n int) { c.BatchMaxOps = n }),
		// batch_max_ops is 4096
		"batch_inflight_ops": numbers(4096, 1<<20, func(c *Config, n int) { c.BatchInflightOps = n }),
		"assets":             numbers(1, 256, func(c *Config, n int) { c.Assets = assetNames(n) }),
		"decimals":           numbers(0, engines.MaxDecimals, func(c *Config, n int) { c.Decimals = map[string]int{"ron": n} }),

		"retry.base": lasts(ms, 10*time.Second,
			func(c *Config, d unit.Duration) { c.Retry.Base, c.Retry.Max, c.Retry.Jitter = d, seconds(60), 0 }),
		// base is 50 ms
		"retry.max":    lasts(50*ms, minute, func(c *Config, d unit.Duration) { c.Retry.Max = d }),
		"retry.jitter": lasts(0, 50*ms, func(c *Config, d unit.Duration) { c.Retry.Jitter = d }),
		"retry.tries":  numbers(1, 5, func(c *Config, n int) { c.Retry.Tries = n }),
		"retry.rpc_timeout": lasts(10*ms, 10*time.Second,
			func(c *Config, d unit.Duration) { c.Retry.RPCTimeout, c.ReqTimeout = d, seconds(60) }),

		"circuit_breaker.failure_threshold": numbers(1, 1_000_000,
			func(c *Config, n int) { c.CircuitBreaker.FailureThreshold = n }),
		"circuit_breaker.window": lasts(100*ms, 10*minute,
			func(c *Config, d unit.Duration) { c.CircuitBreaker.Window = d }),
		"circuit_breaker.open_duration": lasts(10*ms, 10*minute,
			func(c *Config, d unit.Duration) { c.CircuitBreaker.OpenDuration = d }),
		"circuit_breaker.half_open_max": numbers(1, 1000, func(c *Config, n int) { c.CircuitBreaker.HalfOpenMax = n }),
	}
}

func assetNames(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("a%d", i))
	}
	return names
}

// fault changes the default configuration and returns the key that Validate rejects, or "" if the
// result is valid. It fails the test if there is more than one error.
func fault(t *testing.T, change func(*Config)) string {
	t.Helper()
	c := DefaultConfig()
	change(&c)
	err := c.Validate()
	if err == nil {
		return ""
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one fault: %v", err)
	}
	key, _, _ := strings.Cut(err.Error(), " = ")
	return key
}

// Validate accepts each bound and rejects the next value beyond it, with an error that names the
// key.
func TestFaultsNameTheirKey(t *testing.T) {
	for key, b := range bounds() {
		for _, tt := range []struct {
			v    int64
			want string
		}{{b.lo - 1, key}, {b.lo, ""}, {b.hi, ""}, {b.hi + 1, key}} {
			if got := fault(t, func(c *Config) { b.set(c, tt.v) }); got != tt.want {
				t.Errorf("%s = %d: fault %q, want %q", key, tt.v, got, tt.want)
			}
		}
	}
}

// Keys with valid values that are not one numeric range.
func TestOddBounds(t *testing.T) {
	perOp, daily, total := DefaultConfig().MaxAmountPerOp, DefaultConfig().DailyCeiling, DefaultConfig().MaxAccountTotal
	less := func(a engines.Amount) engines.Amount { out, _ := a.Sub(engines.AmountOf(0, 1)); return out }
	more := func(a engines.Amount) engines.Amount { out, _ := a.Add(engines.AmountOf(0, 1)); return out }
	factor := func(f float64) func(*Config) { return func(c *Config) { c.Retry.Factor = f } }
	shards := func(n int) func(*Config) { return func(c *Config) { c.Shards = n } }
	for _, tt := range []struct {
		key   string
		fails bool
		set   func(*Config)
	}{
		{"retry.factor", true, factor(math.Nextafter(1, 0))}, {"retry.factor", false, factor(1)}, {"retry.factor", false, factor(10)},
		{"retry.factor", true, factor(math.Nextafter(10, 11))}, {"retry.factor", true, factor(math.NaN())}, {"retry.factor", true, factor(math.Inf(1))},
		{"shards", true, shards(3)}, {"shards", false, shards(2)}, {"shards", true, shards(1023)}, {"shards", false, shards(512)}, {"shards", true, shards(2048)},
		{"shards", true, shards(-64)},
		{"max_amount_per_op", true, func(c *Config) { c.MaxAmountPerOp = engines.Amount{} }},
		{"max_amount_per_op", false, func(c *Config) { c.MaxAmountPerOp = engines.AmountOf(0, 1) }},
		{"max_amount_per_op", false, func(c *Config) { c.MaxAmountPerOp = daily }},
		{"daily_ceiling", true, func(c *Config) { c.MaxAmountPerOp = more(daily) }},
		{"daily_ceiling", true, func(c *Config) { c.DailyCeiling = less(perOp) }}, {"daily_ceiling", false, func(c *Config) { c.DailyCeiling = perOp }},
		{"daily_ceiling", false, func(c *Config) { c.DailyCeiling = total }}, {"max_account_total", true, func(c *Config) { c.DailyCeiling = more(total) }},
		{"max_account_total", true, func(c *Config) { c.MaxAccountTotal = less(daily) }}, {"max_account_total", false, func(c *Config) { c.MaxAccountTotal = daily }},
		{"max_account_total", false, func(c *Config) { c.MaxAccountTotal = engines.AmountOf(math.MaxUint64, math.MaxUint64) }},
		{"nonce_mode", false, func(c *Config) { c.NonceMode = NonceMonotonic }}, {"nonce_mode", true, func(c *Config) { c.NonceMode = "" }},
		{"max_open_holds", false, func(c *Config) { c.MaxOpenHolds = 0 }}, {"max_open_holds", false, func(c *Config) { c.MaxOpenHolds = math.MaxUint64 }},
		{"enabled", false, func(c *Config) { c.Enabled = false }},
		{"assets", true, func(c *Config) { c.Assets = []string{"ron", ""} }}, {"assets", false, func(c *Config) { c.Assets = []string{strings.Repeat("a", 16)} }},
		{"assets", true, func(c *Config) { c.Assets = []string{strings.Repeat("a", 17)} }},
		{"decimals", true, func(c *Config) { c.Decimals = map[string]int{"Ron": 1} }},
	} {
		want := ""
		if tt.fails {
			want = tt.key
		}
		if got := fault(t, tt.set); got != want {
			c := DefaultConfig()
			tt.set(&c)
			t.Errorf("%s: fault %q, want %q: %+v", tt.key, got, want, c)
		}
	}
}

// If the bound of a key depends on another key, it moves with the value of that key.
func TestBoundsThatMove(t *testing.T) {
	for doc, tt := range map[string]struct {
		set  func(*Config)
		want string
	}{
		"a request as long as a call":       {func(c *Config) { c.ReqTimeout, c.Retry.RPCTimeout = seconds(7), seconds(7) }, ""},
		"a request shorter than a call":     {func(c *Config) { c.ReqTimeout, c.Retry.RPCTimeout = seconds(7), seconds(7)+1 }, "req_timeout"},
		"a cap as low as the first wait":    {func(c *Config) { c.Retry.Base, c.Retry.Max = millis(70), millis(70) }, ""},
		"a cap below the first wait":        {func(c *Config) { c.Retry.Base, c.Retry.Max = millis(70)+1, millis(70) }, "retry.max"},
		"jitter as long as the first wait":  {func(c *Config) { c.Retry.Base, c.Retry.Jitter = millis(10), millis(10) }, ""},
		"jitter longer than the first wait": {func(c *Config) { c.Retry.Base, c.Retry.Jitter = millis(10), millis(10)+1 }, "retry.jitter"},
		"room for one batch":                {func(c *Config) { c.BatchMaxOps, c.BatchInflightOps = 7, 7 }, ""},
		"room for less than a batch":        {func(c *Config) { c.BatchMaxOps, c.BatchInflightOps = 7, 6 }, "batch_inflight_ops"},
	} {
		if got := fault(t, tt.set); got != tt.want {
			t.Errorf("%s: fault %q, want %q", doc, got, tt.want)
		}
	}
}

// Every key has a bound, except the listed keys.
func TestEveryKeyHasABound(t *testing.T) {
	all, odd := map[string]string{}, []string{
		"enabled",
		"max_amount_per_op",
		"daily_ceiling",
		"max_account_total",
		"max_open_holds",
		"nonce_mode",
		"retry.factor",
	}
	flatten(all, "", reflect.ValueOf(DefaultConfig()))
	known := append(slices.Collect(maps.Keys(bounds())), odd...)
	for key := range all {
		if !slices.Contains(known, key) {
			t.Errorf("%s has no bound", key)
		}
	}
	if len(known) != len(all) {
		t.Errorf("%d keys have a bound, of %d", len(known), len(all))
	}
}
