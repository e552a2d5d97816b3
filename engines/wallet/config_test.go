package wallet

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/unit"
)

// Every default has its documented value, and the configuration has no other keys.
func TestDefaults(t *testing.T) {
	want := map[string]string{
		"enabled":                           "true",
		"workers":                           "0",
		"worker_burst":                      "256",
		"limits.max_inflight":               "1024",
		"limits.rate_per_second":            "1000",
		"limits.read_rps":                   "0",
		"limits.burst":                      "2000",
		"req_timeout":                       "5s",
		"drain_deadline":                    "5s",
		"idempotency_ttl":                   "1d",
		"max_amount_per_op":                 "1" + strings.Repeat("0", 20),
		"daily_ceiling":                     "1" + strings.Repeat("0", 22),
		"max_account_total":                 "340282366920938463463374607430768211455",
		"nonce_start":                       "1",
		"nonce_mode":                        "strict",
		"shards":                            "64",
		"batch_max_ops":                     "4096",
		"batch_inflight_ops":                "16384",
		"max_open_holds":                    "1000000",
		"assets":                            "[ron]",
		"decimals":                          "map[]",
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

// flatten stores the fields of a section in into, under their TOML keys.
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

// Retry delays follow the formula plus or minus the jitter. They never leave that range and are
// uniform within it.
func TestRetryDelays(t *testing.T) {
	c := DefaultConfig().Retry
	const steps, draws = 5, 10_000
	for _, jitter := range []time.Duration{0, 2, 20 * time.Millisecond} {
		c.Jitter = unit.Duration(jitter)
		for n, want := range []time.Duration{50, 100, 200, 400, 800, 1000, 1000} {
			least, width := want*time.Millisecond-jitter, 2*jitter+1
			var met [steps]int // counts per equal part of the range
			for range draws {
				d := c.delay(n) - least
				if d < 0 || d >= width {
					t.Fatalf("jitter %s, after failure %d: %s", jitter, n, least+d)
				}
				met[d*steps/width]++
			}
			for part, times := range met {
				if jitter > 0 && (times < draws/steps*4/5 || times > draws/steps*6/5) { // ten standard deviations
					t.Errorf("jitter %s, after failure %d: part %d is met %d times in %d", jitter, n, part, times,
						draws)
				}
			}
		}
	}
}
