package upkeep

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"ronbox/appliance/obs"
)

// expiryEvery is the interval of reading the expiries of tokens and keys, which alerts announce
// days before.
const expiryEvery = time.Minute

// Expiries holds when tokens and keys expire, for alerts, in Unix ns; 0 means none or unknown.
type Expiries struct{ token, rootKey atomic.Int64 }

// Describe registers the metrics.
func (e *Expiries) Describe(m *obs.Metrics, service string) {
	at := func(ns *atomic.Int64) func() float64 {
		return func() float64 {
			if v := ns.Load(); v != 0 {
				return float64(v) / float64(time.Second)
			}
			return math.NaN()
		}
	}
	m.Gauge("auth_token_expiry_seconds", service, at(&e.token))
	m.Gauge("auth_root_key_due_seconds", service, at(&e.rootKey))
}

// Job returns the job that reads the expiries.
func (e *Expiries) Job(read func(context.Context) (token, rootKey time.Time, err error)) *Job {
	return &Job{Name: "expiries", Every: Fixed(expiryEvery), Do: func(ctx context.Context) error {
		token, rootKey, err := read(ctx)
		if err != nil {
			return err
		}
		for at, to := range map[*atomic.Int64]time.Time{&e.token: token, &e.rootKey: rootKey} {
			if to.IsZero() {
				at.Store(0)
			} else {
				at.Store(to.UnixNano())
			}
		}
		return nil
	}}
}
