package wallet_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// instant is a ledger that accepts every op immediately and stores nothing, so that a benchmark
// measures only the wallet.
type instant struct {
	ledger.Client
	seq atomic.Uint64
}

func (l *instant) Commit(_ context.Context, ops []ledger.Op) ([]ledger.Outcome, error) {
	outs := make([]ledger.Outcome, len(ops))
	for i := range ops {
		o := &ops[i]
		seq := l.seq.Add(1)
		outs[i].Receipt = record.Receipt{
			TxID:    record.NewTxID(1, seq, 1),
			Op:      o.Code,
			From:    o.From,
			To:      o.To,
			Asset:   o.Asset,
			Amount:  o.Amount,
			Nonce:   o.Nonce,
			Idem:    o.Idem,
			At:      1,
			Seq:     seq,
			Batch:   seq,
			Version: record.ReceiptVersion,
		}
	}
	return outs, nil
}

func (l *instant) Prepare(_ context.Context, op *ledger.Op) (*ledger.Prepared, error) {
	return &ledger.Prepared{Op: op}, nil
}

func (l *instant) Submit(_ context.Context, ops []*ledger.Prepared) (ledger.Pending, error) {
	return pendingFunc(func(ctx context.Context) ([]ledger.Outcome, error) { return l.Commit(ctx, opsOf(ops)) }), nil
}

// BenchmarkPost measures single transfers by concurrent submitters, each from a different account.
func BenchmarkPost(b *testing.B) {
	for _, submitters := range []int{1, 256} {
		b.Run(fmt.Sprintf("instant/%d", submitters), func(b *testing.B) {
			r := newRig(b, over(func(c ledger.Client) ledger.Client { return &instant{Client: c} })).start()
			post(b, r, submitters)
		})
		b.Run(fmt.Sprintf("file/%d", submitters), func(b *testing.B) {
			n := newNode(b)
			n.pay(submitters, 1_000_000_000)
			post(b, n.rig, submitters)
		})
	}
}

func post(b *testing.B, r *rig, submitters int) {
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for i := range submitters {
		wg.Go(func() {
			from, key := name(i), "k"+strconv.Itoa(i)+"-"
			for n := uint64(1); left.Add(-1) >= 0; n++ {
				if _, err := r.post(key+strconv.FormatUint(n, 10), transfer(from, "shop", 1, n)); err != nil {
					b.Errorf("%v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "transfers/s")
}

// BenchmarkBatch measures batches of 1000 transfers between 1000 accounts, by four concurrent
// submitters.
func BenchmarkBatch(b *testing.B) {
	const size, submitters = 1000, 4
	n := newNode(b)
	n.pay(size*submitters, 1_000_000_000)
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for i := range submitters {
		wg.Go(func() {
			ops := make([]ledger.Op, size)
			for nonce := uint64(1); left.Add(-1) >= 0; nonce++ {
				for k := range ops {
					ops[k] = transfer(name(i*size+k), name(i*size+(k+1)%size), 1, nonce)
				}
				a, err := n.e.Batch(context.Background(), alice, fmt.Sprintf("b%d-%d", i, nonce), "", false, ops)
				if err != nil || !wholeOf(a) {
					b.Errorf("%s, %v", bytesOf(a), err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)*size/b.Elapsed().Seconds(), "transfers/s")
}

// BenchmarkBalance measures balance reads from the cache.
func BenchmarkBalance(b *testing.B) {
	r := newRig(b).start()
	r.fund("alice", 1)
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if _, err := r.balance("alice", 0); err != nil {
				b.Error(err)
			}
		}
	})
}
