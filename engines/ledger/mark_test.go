package ledger_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// An event of the largest batch over HTTP keeps about 16 KiB alive, so that all events in the bus
// stay within 16 MiB.
func TestEventsAreSmall(t *testing.T) {
	const batches, most = 32, 20 << 10
	r := newRig(t, nil).declare("ron")
	nonce := uint64(0)
	for n := range batches {
		ops := make([]ledger.Op, 4096)
		for i := range ops {
			nonce++
			ops[i] = issue(fmt.Sprint(strings.Repeat("x", 40), n%4, "-", i), 1, nonce)
		}
		r.accept(keyed(ledger.Op{Code: record.OpBatch, Ops: ops}, fmt.Sprint(nonce)))
	}
	with := heapInUse()
	r.l.ForgetEvents()
	if each := int64(with-heapInUse()) / batches; each > most {
		t.Errorf("an event keeps %d bytes alive, want %d at most", each, most)
	}
}

// heapInUse returns the bytes reachable on the heap.
func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// An event names the changed balances up to a bound. Beyond it, the event says that any balance may
// have changed.
func TestEventsSayWhatChanged(t *testing.T) {
	r := newRig(t, nil).declare("ron")
	news := r.l.Events("test")
	defer news.Close()
	nonce := uint64(0)
	for _, n := range []int{1, 512, ledger.MaxTouched / 2, ledger.MaxTouched/2 + 1} {
		ops := make([]ledger.Op, n)
		for i := range ops {
			nonce++
			ops[i] = issue(fmt.Sprint("to", i), 1, nonce)
		}
		r.accept(ops...)
		ev, _, _ := news.Next()
		if ev.All != (2*n > ledger.MaxTouched) || len(ev.Touched) > ledger.MaxTouched {
			t.Fatalf("%d ops: all = %v, %d marks", n, ev.All, len(ev.Touched))
		}
		for i := range ops {
			if !ev.All && !slices.Contains(ev.Touched, ledger.MarkOf(ops[i].To, "ron")) {
				t.Fatalf("%d ops: the mark of op %d is missing", n, i)
			}
		}
	}
}
