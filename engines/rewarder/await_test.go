package rewarder_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"ronbox/appliance/unit"
	"ronbox/engines"
	"ronbox/engines/rewarder"
)

// patience bounds waits for events that must happen. It is long because the machine may be busy.
const patience = 2 * time.Minute

// await waits until a run is in one of the states.
func (r *rig) await(epoch string, states ...rewarder.State) rewarder.Run {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.ctx(), patience)
	defer cancel()
	sub := r.e.Events().Subscribe("test")
	defer sub.Close()
	for {
		run, err := r.e.Epoch(r.ctx(), rewarder.DefaultTenant, epoch)
		if err == nil && slices.Contains(states, run.State) {
			return run
		}
		for heard := (rewarder.Event{}); err == nil && heard.Epoch != epoch; {
			var lagged uint64
			if heard, lagged, err = sub.Recv(ctx); lagged > 0 {
				break
			}
		}
		if err != nil {
			r.t.Fatalf("epoch %s is %s (%s %+v), not %v: %v", epoch, run.State, run.Reason, run.Quarantine, states, err)
		}
	}
}

// hearLedger sets the timeout of ledger calls.
func (r *rig) hearLedger(within time.Duration) {
	cfg := r.cfg
	cfg.ReadTimeout = unit.Duration(within)
	r.e.Reload(cfg)
}

// eventually polls until ok.
func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("never: %s", what)
		}
	}
}

// balance returns the available balance of an account.
func (r *rig) balance(account string) string {
	r.t.Helper()
	v, err := r.model.Balance(r.ctx(), account, asset, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	return v.Available.String()
}

// count reads a counter by its name and labels, as "name{a=b,c=d}"; service is the rewarder's.
func (r *rig) count(series string) float64 {
	r.t.Helper()
	name, rest, _ := strings.Cut(strings.TrimSuffix(series, "}"), "{")
	all, err := r.metrics.Registry().Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			ok := labels["service"] == rewarder.Service
			for _, pair := range strings.Split(rest, ",") {
				if k, v, has := strings.Cut(pair, "="); has && labels[k] != v {
					ok = false
				}
			}
			if ok {
				if h := m.GetHistogram(); h != nil {
					return float64(h.GetSampleCount())
				}
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// Values shared by goroutines.
type (
	syncBool  = atomic.Bool
	syncCount = atomic.Int64
)

// paidOnce checks the balance of each actor and of the funding account. It reads the model, even if
// it is closed.
func (r *rig) paidOnce(want map[string]engines.Amount, left engines.Amount) {
	r.t.Helper()
	model := r.model.Reopen()
	for actor, amount := range want {
		v, err := model.Balance(r.ctx(), actor, asset, 0)
		if err != nil || v.Available != amount {
			r.t.Fatalf("%s has %s, want %s (%v)", actor, v.Available, amount, err)
		}
	}
	if v, err := model.Balance(r.ctx(), pool, asset, 0); err != nil || v.Available != left {
		r.t.Fatalf("%s has %s, want %s (%v)", pool, v.Available, left, err)
	}
}

func asA[T error](err error) (T, bool) {
	var is T
	return is, errors.As(err, &is)
}
