package rewarder_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger"
	ledgerrecord "ronbox/engines/ledger/record"
	"ronbox/engines/rewarder"
	"ronbox/engines/rewarder/calculus"
)

// anonKiB returns the anonymous memory of the process in KiB.
func anonKiB(b *testing.B) (n int) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Skip(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); f[0] == "RssAnon:" {
			n, _ = strconv.Atoi(f[1])
		}
	}
	return n
}

// peak returns a function that reports the peak of memory since the call, in MiB above the idle
// level.
func peak(b *testing.B) (stop func() float64) {
	runtime.GC()
	debug.FreeOSMemory()
	idle, done, most := anonKiB(b), make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-done:
				most <- n
				return
			case <-time.After(10 * time.Millisecond):
				n = max(n, anonKiB(b))
			}
		}
	}()
	return func() float64 {
		close(done)
		return float64(<-most-idle) / 1024
	}
}

// BenchmarkSealMillion measures the time from the acceptance of a run with a million actors to its
// seal, compared with the time of the computation alone.
func BenchmarkSealMillion(b *testing.B) {
	const actors = 1_000_000
	r := newRig(b, func(r *rig) { r.artifacts, r.cfg.Concurrency.ComputeWorkers = "", 1 })
	r.start()
	p := policy()
	r.put(p)
	in := r.seal(inputOf("e0", 4_000_000), many(actors))
	for n := 0; b.Loop(); n++ {
		epoch := fmt.Sprint("e", n)
		if n > 0 {
			b.StopTimer()
			in = r.seal(inputOf(epoch, 4_000_000), many(actors))
			b.StartTimer()
		}
		b.StopTimer()
		over := peak(b)
		b.StartTimer()
		began := time.Now()
		r.mustCompute(epoch, in, p)
		r.await(epoch, rewarder.Sealed, rewarder.Settling, rewarder.Settled)
		b.ReportMetric(time.Since(began).Seconds(), "seal-s")
		b.StopTimer()
		b.ReportMetric(over(), "MiB-over-idle")
		began = time.Now()
		m, _, err := rewarder.Load(r.e, r.ctx(),
			rewarder.JobOf(rewarder.Scoped(rewarder.DefaultTenant, epoch),
				r.await(epoch, rewarder.Sealed, rewarder.Settling, rewarder.Settled).RunKey))
		if err != nil {
			b.Fatal(err)
		}
		_, scores, err := rewarder.Scores(r.e, r.ctx(), &m)
		if err != nil {
			b.Fatal(err)
		}
		if _, _, err := calculus.Share(r.ctx(), n64(4_000_000), scores, calculus.Rule{Remainder: true}); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(began).Seconds(), "compute-s")
		b.StartTimer()
	}
}

// withLedger returns a rig in which the node's own ledger pays from the same file. Its tasks are
// started.
func withLedger(b *testing.B) (*rig, *ledger.Local) {
	late := &lateLedger{}
	r := newRig(b, func(r *rig) {
		r.ledger, r.artifacts, r.before = late, "", func(r *rig) {
			late.Local = ledger.New(
				ledger.DefaultConfig(),
				ledger.Deps{Catalog: r.catalog, Store: r.store, Metrics: r.metrics, Board: r.board},
			)
		}
	})
	if err := late.Recover(r.ctx()); err != nil {
		b.Fatal(err)
	}
	r.sup.Start(late.Tasks()...)
	if err := late.Declare(r.ctx(), ledger.Op{Code: ledgerrecord.OpAsset, Asset: asset}); err != nil {
		b.Fatal(err)
	}
	for i := uint64(1); i <= 3; i++ {
		out, err := late.Commit(r.ctx(), []ledger.Op{
			{
				Code:        ledgerrecord.OpIssue,
				To:          []string{"", pool, "bob", "carol"}[i],
				Asset:       asset,
				Amount:      n64(1 << 40),
				Nonce:       i,
				Idem:        fmt.Sprint("fund", i),
				Dedupe:      ledger.DedupeKey{Scope: "t", Key: fmt.Sprint(i)},
				Fingerprint: b3.Sum([]byte{byte(i)}),
				TTL:         time.Hour,
				Principal:   "t",
			},
		})
		if err != nil || out[0].Reject != nil {
			b.Fatal(err, out)
		}
	}
	return r, late.Local
}

// lateLedger is a ledger that is set after the store exists.
type lateLedger struct{ *ledger.Local }

// BenchmarkSettle measures the postings per second when a run of 100,000 actors is settled,
// compared with the ledger's own settlements of 512.
func BenchmarkSettle(b *testing.B) {
	const actors = 100_000
	r, own := withLedger(b)
	r.start()
	p := policy()
	r.put(p)
	var batch atomic.Uint64
	for n := 0; b.Loop(); n++ {
		epoch := fmt.Sprint("e", n)
		b.StopTimer()
		in := r.seal(inputOf(epoch, 5_000_000), many(actors))
		b.StartTimer()
		r.mustCompute(epoch, in, p)
		r.await(epoch, rewarder.Sealed, rewarder.Settling, rewarder.Settled)
		began := time.Now()
		r.await(epoch, rewarder.Settled)
		engine := actors / time.Since(began).Seconds()
		b.StopTimer()
		began = time.Now()
		for c := 0; c < actors; c += 512 {
			ops := make([]ledger.Op, 512)
			for i := range ops {
				ops[i] = ledger.Op{
					Code:      ledgerrecord.OpTransfer,
					From:      pool,
					To:        fmt.Sprintf("acct_%07d", c+i),
					Asset:     asset,
					Amount:    n64(1),
					Principal: "t",
				}
			}
			id := fmt.Sprint("batch", batch.Add(1))
			if out, err := own.Settle(context.Background(),
				ledger.Once{Domain: "bench", ID: id, Digest: b3.Sum([]byte(id))}, ops); err != nil ||
				out.Reject != nil {
				b.Fatal(err, out.Reject)
			}
		}
		alone := actors / time.Since(began).Seconds()
		b.ReportMetric(engine, "postings/s")
		b.ReportMetric(alone, "alone/s")
		b.ReportMetric(engine/alone, "ratio")
		b.StartTimer()
	}
}
