package wallet

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/unit"
	"ronbox/engines"
)

// Every default is held, and every key is one of these.
func TestDefaults(t *testing.T) {
	want := map[string]string{
		"enabled":                           "true",
		"workers":                           "0",
		"worker_burst":                      "256",
		"limits.max_inflight":               "1024",
		"limits.rate_per_second":            "1000",
		"limits.burst":                      "2000",
		"req_timeout":                       "5s",
		"drain_deadline":                    "5s",
		"staleness_window":                  "250ms",
		"idempotency_ttl":                   "1d",
		"max_amount_per_op":                 "1" + strings.Repeat("0", 20),
		"daily_ceiling":                     "1" + strings.Repeat("0", 22),
		"max_account_total":                 "340282366920938463463374607430768211455",
		"nonce_start":                       "1",
		"nonce_mode":                        "strict",
		"nonce_pipeline":                    "64",
		"nonce_wait":                        "50ms",
		"shards":                            "64",
		"batch_max_ops":                     "4096",
		"batch_inflight_ops":                "16384",
		"max_open_holds":                    "1000000",
		"assets":                            "[ron]",
		"balance_cache_bytes":               "32MiB",
		"retry.base":                        "50ms",
		"retry.max":                         "1s",
		"retry.factor":                      "2",
		"retry.jitter":                      "20ms",
		"retry.tries":                       "3",
		"retry.rpc_timeout":                 "1s",
		"circuit_breaker.failure_threshold": "20",
		"circuit_breaker.window":            "10s",
		"circuit_breaker.open_duration":     "5s",
		"circuit_breaker.half_open_max":     "10",
	}
	c := DefaultConfig()
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	got := map[string]string{}
	flatten(got, "", reflect.ValueOf(c))
	for key, v := range got {
		if want[key] != v {
			t.Errorf("%s = %s, want %q", key, v, want[key])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d keys, want %d: %v", len(got), len(want), got)
	}
	if n := workers(c); n != min(max(2, runtime.NumCPU()), maxWorkers) {
		t.Errorf("%d workers", n)
	}
}

// flatten gives the values of a section by their keys.
func flatten(into map[string]string, prefix string, v reflect.Value) {
	for i := range v.NumField() {
		key := prefix + v.Type().Field(i).Tag.Get("toml")
		field := v.Field(i)
		if _, text := field.Interface().(fmt.Stringer); field.Kind() == reflect.Struct && !text {
			flatten(into, key+".", field)
			continue
		}
		into[key] = fmt.Sprint(field.Interface())
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

// The delays of the retries are those of the formula, give or take the jitter: never less, never more, and every delay between is as likely.
func TestRetryDelays(t *testing.T) {
	c := DefaultConfig().Retry
	const steps, draws = 5, 10_000
	for _, jitter := range []time.Duration{0, 2, 20 * time.Millisecond} {
		c.Jitter = unit.Duration(jitter)
		for n, want := range []time.Duration{50, 100, 200, 400, 800, 1000, 1000} {
			least, width := want*time.Millisecond-jitter, 2*jitter+1
			var met [steps]int // of equal parts of the range
			for range draws {
				d := c.delay(n) - least
				if d < 0 || d >= width {
					t.Fatalf("jitter %s, after failure %d: %s", jitter, n, least+d)
				}
				met[d*steps/width]++
			}
			for part, times := range met {
				if jitter > 0 && (times < draws/steps*4/5 || times > draws/steps*6/5) { // ten standard deviations
					t.Errorf("jitter %s, after failure %d: part %d is met %d times in %d", jitter, n, part, times, draws)
				}
			}
		}
	}
}
