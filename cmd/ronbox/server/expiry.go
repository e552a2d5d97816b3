package server

import (
	"context"
	"math"
	"sync/atomic"
	"time"
)

// expiryEvery is the interval of reading the expiries of tokens and keys, which alerts announce
// days before.
const expiryEvery = time.Minute

// deadlines holds times for alerts in Unix ns; 0 means none or unknown.
type deadlines struct {
	backup, token, rootKey atomic.Int64
	failed                 atomic.Pointer[error] // of the last scheduled snapshot, or of its folder at the start
}

// describeDeadlines registers the metrics of the age of the backup and the expiry of tokens and
// keys.
func (n *Node) describeDeadlines() {
	at := func(ns *atomic.Int64) func() float64 {
		return func() float64 {
			if v := ns.Load(); v != 0 {
				return float64(v) / float64(time.Second)
			}
			return math.NaN()
		}
	}
	n.metrics.Gauge("auth_token_expiry_seconds", ownService, at(&n.due.token))
	n.metrics.Gauge("auth_root_key_due_seconds", ownService, at(&n.due.rootKey))
	n.metrics.Gauge("backup_interval_seconds", ownService, func() float64 { return n.snapshotEvery().Seconds() })
	n.metrics.Gauge("backup_age_seconds", ownService, func() float64 {
		last := n.due.backup.Load()
		if last == 0 || n.boot.Amnesia.Enabled {
			return math.NaN()
		}
		return n.now().Sub(time.Unix(0, last)).Seconds()
	})
}

// backedUp records the time of a snapshot.
func (n *Node) backedUp(at time.Time) {
	if ns := at.UnixNano(); ns > n.due.backup.Load() {
		n.due.backup.Store(ns)
	}
}

// readExpiries reads the expiries of tokens and keys.
func (n *Node) readExpiries(ctx context.Context) error {
	token, rootKey, err := n.Expiry(ctx)
	if err != nil {
		return err
	}
	for at, to := range map[*atomic.Int64]time.Time{&n.due.token: token, &n.due.rootKey: rootKey} {
		if to.IsZero() {
			at.Store(0)
		} else {
			at.Store(to.UnixNano())
		}
	}
	return nil
}
