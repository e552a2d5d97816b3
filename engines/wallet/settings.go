package wallet

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/ledger"
)

// settings is a configuration in force with what is made from it. It is never changed.
type settings struct {
	Config
	limits *ledger.Limits
	writes flow.Retrier
	reads  flow.Retrier
}

func newSettings(c *flow.Catalog, cfg Config) *settings {
	retry := func(op string) flow.Retrier {
		return flow.Retry(cfg.Retry.delay, cfg.Retry.Tries, transient).Counting(c, service, op, "svc", upstream)
	}
	return &settings{Config: cfg, limits: cfg.limits(), writes: retry(opCommit), reads: retry("read")}
}

// delay is the wait after failure n, the first being 0: min(base·factorⁿ, max), give or take jitter.
func (c RetryConfig) delay(n int) time.Duration {
	d := time.Duration(min(float64(c.Base)*math.Pow(c.Factor, float64(n)), float64(c.Max)))
	if j := c.Jitter.D(); j > 0 {
		d += rand.N(2*j+1) - j
	}
	return d // base is no less than jitter
}

// transient says whether the same call may do better soon. A refusal is not among these: it is an outcome, not an error.
func transient(err error) bool {
	return errors.Is(err, ledger.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// live is the configuration in force.
func (e *Engine) live() *settings { return e.set.Load() }

// Reload puts a valid configuration in force, for the requests and the calls of the ledger that begin from now on. Keys that need a
// restart keep the value they had. It does not wait.
func (e *Engine) Reload(cfg Config) {
	if old := e.live().CircuitBreaker; old != cfg.CircuitBreaker {
		e.link.breaker.Reload(cfg.CircuitBreaker.rule())
	}
	e.set.Store(newSettings(e.catalog, cfg))
}
