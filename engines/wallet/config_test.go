package wallet

import (
	"strings"
	"testing"
	"time"

	"ronbox/appliance/unit"
	"ronbox/engines"
)

func TestDefaultsAreValid(t *testing.T) {
	c := DefaultConfig()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, amounts := range map[string][2]string{
		"max_amount_per_op": {c.MaxAmountPerOp.String(), "1" + strings.Repeat("0", 20)},
		"daily_ceiling":     {c.DailyCeiling.String(), "1" + strings.Repeat("0", 22)},
		"max_account_total": {c.MaxAccountTotal.String(), "340282366920938463463374607430768211455"},
	} {
		if amounts[0] != amounts[1] {
			t.Errorf("%s = %s, want %s", name, amounts[0], amounts[1])
		}
	}
}

// Each fault is found, and begins with the key that it is of.
func TestFaultsNameTheirKey(t *testing.T) {
	for key, spoil := range map[string]func(*Config){
		"workers":                           func(c *Config) { c.Workers = 65 },
		"worker_burst":                      func(c *Config) { c.WorkerBurst = 0 },
		"limits.max_inflight":               func(c *Config) { c.Limits.MaxInflight = 512 },
		"limits.rate_per_second":            func(c *Config) { c.Limits.RatePerSecond = 0 },
		"limits.burst":                      func(c *Config) { c.Limits.Burst = 0 },
		"req_timeout":                       func(c *Config) { c.ReqTimeout = c.Retry.RPCTimeout - 1 },
		"drain_deadline":                    func(c *Config) { c.DrainDeadline = unit.Duration(6 * time.Second) },
		"staleness_window":                  func(c *Config) { c.StalenessWindow = 0 },
		"idempotency_ttl":                   func(c *Config) { c.IdempotencyTTL = unit.Duration(73 * time.Hour) },
		"max_amount_per_op":                 func(c *Config) { c.MaxAmountPerOp = engines.Amount{} },
		"daily_ceiling":                     func(c *Config) { c.DailyCeiling = amountOf(1) },
		"max_account_total":                 func(c *Config) { c.MaxAccountTotal = amountOf(1) },
		"nonce_start":                       func(c *Config) { c.NonceStart = 0 },
		"nonce_mode":                        func(c *Config) { c.NonceMode = "loose" },
		"nonce_pipeline":                    func(c *Config) { c.NoncePipeline = 1025 },
		"nonce_wait":                        func(c *Config) { c.NonceWait = seconds(2) },
		"shards":                            func(c *Config) { c.Shards = 48 },
		"batch_max_ops":                     func(c *Config) { c.BatchMaxOps = 4097 },
		"batch_inflight_ops":                func(c *Config) { c.BatchInflightOps = 4095 },
		"assets":                            func(c *Config) { c.Assets = []string{"RON"} },
		"balance_cache_bytes":               func(c *Config) { c.BalanceCacheBytes = 1 },
		"retry.base":                        func(c *Config) { c.Retry.Base = 0; c.Retry.Jitter = 0 },
		"retry.max":                         func(c *Config) { c.Retry.Max = 1 },
		"retry.factor":                      func(c *Config) { c.Retry.Factor = .5 },
		"retry.jitter":                      func(c *Config) { c.Retry.Jitter = c.Retry.Base + 1 },
		"retry.tries":                       func(c *Config) { c.Retry.Tries = 6 },
		"retry.rpc_timeout":                 func(c *Config) { c.Retry.RPCTimeout = 1 },
		"circuit_breaker.failure_threshold": func(c *Config) { c.CircuitBreaker.FailureThreshold = 0 },
		"circuit_breaker.window":            func(c *Config) { c.CircuitBreaker.Window = 0 },
		"circuit_breaker.open_duration":     func(c *Config) { c.CircuitBreaker.OpenDuration = 0 },
		"circuit_breaker.half_open_max":     func(c *Config) { c.CircuitBreaker.HalfOpenMax = 0 },
	} {
		c := DefaultConfig()
		spoil(&c)
		err := c.Validate()
		if err == nil || !strings.HasPrefix(err.Error(), key+" = ") {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// The delays of the retries are those of the formula, give or take the jitter.
func TestRetryDelays(t *testing.T) {
	c := DefaultConfig().Retry
	for n, want := range []time.Duration{50, 100, 200, 400, 800, 1000, 1000} {
		for range 100 {
			if d := c.delay(n); d < want*time.Millisecond-20*time.Millisecond || d > want*time.Millisecond+20*time.Millisecond {
				t.Fatalf("after failure %d: %s", n, d)
			}
		}
	}
}
