package wallet_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
)

// shared is a buffer that a test reads while tasks write.
type shared struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func (s *shared) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

// The audit stream records accepted and refused requests. It names accounts by their hashes, and
// never contains an account name or a memo.
func TestAuditStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &shared{}
		r := newRig(t, func(r *rig) {
			r.log = hclog.New(&hclog.LoggerOptions{Output: out, JSONFormat: true, Level: hclog.Info})
		}).start()
		r.must("key-secret-1", issue("very-private", 100, 1))
		q := transfer("very-private", "quite-hidden", 10, 1)
		q.Memo = "memo-secret"
		r.must("key-secret-2", q)
		hold := r.must(
			"key-secret-3",
			ledger.Op{
				Code:      record.OpHold,
				From:      "very-private",
				To:        "quite-hidden",
				Asset:     "ron",
				Amount:    amountOf(5),
				Nonce:     2,
				ExpiresIn: time.Hour,
			},
		)
		r.must("key-secret-4", ledger.Op{Code: record.OpCapture, Hold: hold.id(t)})
		if _, err := r.post("key-secret-5", transfer("very-private", "quite-hidden", 1000, 3)); reasonOf(
			err,
		) != "insufficient_funds" {
			t.Error(err)
		}
		if _, err := r.e.Batch(context.Background(), alice, "key-secret-6", "corr-batch", false,
			[]ledger.Op{transfer("very-private", "quite-hidden", 1, 3)}); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		r.must("key-secret-7", issue("very-private", 1, 2)) // the bus event of the earlier commits follows within a second
		r.stop()
		log := out.String()
		for _, want := range []string{
			"wallet.issue.accepted", "wallet.transfer.accepted", wallet.EventHoldOpened, wallet.EventHoldCaptured, wallet.EventRejected, "insufficient_funds",
			"wallet.batch.accepted", wallet.EventRoot, "corr-batch", "corr-key", hold.TxID, "account_hash",
		} {
			if !strings.Contains(log, want) {
				t.Errorf("the log lacks %q", want)
			}
		}
		for _, never := range []string{"very-private", "quite-hidden", "memo-secret"} {
			if strings.Contains(log, never) {
				t.Errorf("the log has %q", never)
			}
		}
	})
}

// Every expired hold is reported exactly once, under its own transaction id.
func TestAuditOfExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &shared{}
		r := newRig(t, func(r *rig) {
			r.log = hclog.New(&hclog.LoggerOptions{Output: out, JSONFormat: true, Level: hclog.Info})
		}).start()
		r.fund("alice", 100)
		var holds []string
		for n := range uint64(3) {
			q := ledger.Op{
				Code:      record.OpHold,
				From:      "alice",
				To:        "bo",
				Asset:     "ron",
				Amount:    amountOf(5),
				Nonce:     n + 1,
				ExpiresIn: time.Second,
			}
			if n == 2 {
				q.ExpiresIn = time.Hour
			}
			holds = append(holds, r.must("hold"+name(int(n)), q).TxID)
		}
		time.Sleep(2 * time.Second)
		for range 2 {
			if err := r.model.Sweep(context.Background()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		r.stop()
		for i, hold := range holds {
			n := 0
			for line := range strings.Lines(out.String()) {
				if strings.Contains(line, wallet.EventHoldExpired) && strings.Contains(line, hold) {
					n++
				}
			}
			if n != []int{1, 1, 0}[i] {
				t.Errorf("hold %d: told %d times that it expired", i, n)
			}
		}
	})
}

// An overrun audit stream drops the oldest events, counts every dropped event, and logs the others.
// Requests do not wait for it.
func TestAuditLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const room, over = 1024, 10 * 1024
		out := &shared{}
		r := newRig(t, func(r *rig) {
			r.log = hclog.New(&hclog.LoggerOptions{Output: out, JSONFormat: true, Level: hclog.Info})
		}).start()
		told := func(name string, n int) {
			for i := range n {
				r.e.Audit(wallet.AuditEvent{Event: wallet.EventRejected, CorrID: fmt.Sprintf("%s-%d-", name, i)})
			}
		}
		told("row", wallet.AuditRow)
		synctest.Wait() // the stream pauses after writing a row
		began := time.Now()
		told("run", over+room)
		if time.Since(began) != 0 {
			t.Errorf("it took %s to tell", time.Since(began))
		}
		time.Sleep(5 * time.Second) // enough for 64 lines per tenth of a second
		r.want(over, "bus_lagged_total", "service", wallet.Service, "bus", "audit")
		r.want(over, "queue_dropped_total", "service", wallet.Service, "queue", "events")
		r.want(over, "bus_lagged_total", "service", wallet.Service) // summed over all buses: each drop is counted once
		log := out.String()
		if n := strings.Count(log, wallet.EventRejected); n != wallet.AuditRow+room {
			t.Errorf("%d lines, want %d", n, wallet.AuditRow+room)
		}
		for i, want := range map[int]int{0: 0, over - 1: 0, over: 1, over + room - 1: 1} {
			if n := strings.Count(log, fmt.Sprintf("run-%d-", i)); n != want {
				t.Errorf("event %d: told %d times, want %d", i, n, want)
			}
		}
		r.stop()
	})
}

// Every counter and gauge exists and is zero at the start, before any request, but for those of the
// calls of the ledger.
func TestSeriesAtStart(t *testing.T) {
	r := newRig(t)
	for _, series := range [][]string{
		{"queue_depth", "queue", "work"}, {"queue_dropped_total", "queue", "work"}, {"queue_dropped_total", "queue", "events"},
		{"bus_lagged_total", "bus", "audit"}, {"io_timeouts_total", "op", "ledger_rpc"}, {"io_timeouts_total", "op", "read"}, {"io_timeouts_total", "op", "connect"},
		{"io_timeouts_total", "op", "write"}, {"backoff_retries_total", "op", wallet.OpCommit, "svc", "ledger"}, {"worker_inflight"},
		{"upstream_fail_total", "svc", "ledger"}, {"upstream_fail_total", "svc", "auth"},
		{"circuit_open_total", "svc", "ledger"}, {"wallet_requests_total", "op", "transfer"}, {"wallet_requests_total", "op", "batch"},
		{"wallet_rejects_total", "reason", "nonce_gap"}, {"wallet_rejects_total", "reason", "busy"}, {"wallet_idem_replays_total"},
		{"wallet_inflight", "op", "issue"}, {"wallet_nonce_conflicts_total"},
		{"balance_cache_total", "outcome", wallet.BalanceHit}, {"balance_cache_total", "outcome", wallet.BalanceMiss},
		{"tasks_canceled_total", "kind", wallet.TaskWorker}, {"readyz_degraded", "cause", wallet.KeyLedger}, {"readyz_degraded", "cause", wallet.KeyBreaker},
	} {
		if got := r.sum(
			series[0],
			append([]string{"service", wallet.Service}, series[1:]...)...); got != 0 &&
			series[0] != "readyz_degraded" {
			t.Errorf("%v = %v at the start", series, got)
		}
	}
}

// The catalogue lists every task and channel, and every name that an entry refers to exists.
func TestTopology(t *testing.T) {
	r := newRig(t)
	for _, lane := range []string{"work", "bulk"} { // of the store below the ledger
		r.catalog.Declare(flow.Spec{
			Service: "store", Name: lane, Kind: flow.KindQueue, Cap: 1, Policy: flow.RejectNew,
			Consumers: []string{"committer"},
		})
	}
	r.catalog.DeclareTask(flow.Task{Service: "store", Name: "committer", Count: 1, Restart: flow.Never})
	r.catalog.DeclareTask(r.e.Tasks()...)
	if err := r.catalog.Check(); err != nil {
		t.Error(err)
	}
	var names []string
	for _, task := range r.e.Tasks() {
		names = append(names, task.Name)
	}
	if want := []string{
		"worker",
		"cache_invalidator",
		"metrics_ticker",
		"audit_stream",
		"watchdog",
	}; !slices.Equal(names, want) {
		t.Errorf("tasks %v, want %v", names, want)
	}
	room := map[string]int{}
	for _, s := range r.catalog.Specs() {
		room[s.Name] = s.Cap
	}
	if room["work_tx"] != 512 || room["events_tx"] != 1024 {
		t.Errorf("channels have room for %v", room)
	}
}
