package ledger_test

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"testing"
	"time"

	"ronbox/engines/ledger"
)

// fund opens and funds n accounts and returns their names.
func (r *rig) fund(n int) []string {
	r.t.Helper()
	names := make([]string, n)
	var ops []ledger.Op
	nonce := uint64(0)
	for i := range names {
		names[i] = fmt.Sprintf("user/%08d", i)
		nonce++
		if ops = append(ops, issue(names[i], 1_000_000_000, nonce)); len(ops) == 4096 || i == n-1 {
			r.accept(ops...)
			ops = ops[:0]
		}
	}
	return names
}

// traffic makes transfers between accounts in rotation, with the nonces of each account in order.
type traffic struct {
	names  []string
	nonces []uint64
	at     int
	keys   uint64
	limits *ledger.Limits
}

func newTraffic(names []string) *traffic {
	return &traffic{names: names, nonces: make([]uint64, len(names)), limits: &ledger.Limits{
		PerOp: amount(1 << 60), Daily: amount(1 << 62), AccountTotal: amount(1 << 63), OpenHolds: 1000,
	}}
}

func (g *traffic) next() ledger.Op {
	from := g.at % len(g.names)
	to := (from + 1 + g.at/len(g.names)%(len(g.names)-1)) % len(g.names)
	g.at++
	g.nonces[from]++
	o := transfer(g.names[from], g.names[to], 1, g.nonces[from])
	o.Principal, o.CapID, o.Limits = "org:alice", "cap-1", g.limits
	return o
}

func (g *traffic) keyed() ledger.Op {
	o := g.next()
	g.keys++
	o.Dedupe = ledger.DedupeKey{Scope: "org:alice", Key: strconv.FormatUint(g.keys, 10)}
	o.Idem, o.TTL = o.Dedupe.Key, time.Hour
	binary.LittleEndian.PutUint64(o.Fingerprint[:], g.keys)
	return o
}

// BenchmarkRedo boots a ledger with no flushed rows, so that every transfer is redone. It reports
// records per second.
func BenchmarkRedo(b *testing.B) {
	r := newRig(b, nil,
		func(c *ledger.Config) { c.DirtyMaxAccounts, c.VerifyOnOpen = 1<<20, ledger.VerifyNone }).declare("ron")
	g := newTraffic(r.fund(10_000))
	const transfers = 200_000
	for n := 0; n < transfers; n += 4096 {
		ops := make([]ledger.Op, 4096)
		for i := range ops {
			ops[i] = g.keyed()
		}
		r.accept(ops...)
	}
	for b.Loop() {
		r.stop()
		begun := time.Now()
		r.open()
		b.ReportMetric(transfers/time.Since(begun).Seconds(), "records/s")
	}
}
