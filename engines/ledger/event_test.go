package ledger_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// An event keeps none of its batch alive: there may be 1,024 in the bus.
func TestEventsAreSmall(t *testing.T) {
	const batches, most = 32, 4 << 10
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
