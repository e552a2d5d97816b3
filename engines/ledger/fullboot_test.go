package ledger_test

import (
	"fmt"
	"strings"
	"testing"

	"ronbox/appliance/host/hosttest"
	"ronbox/appliance/unit"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// A boot with a full file cannot seal the records that it reads, but still finds the whole ledger.
func TestBootWithoutRoom(t *testing.T) {
	if hosttest.UnderRace() {
		t.Skip("nothing runs beside it: left to the run without -race")
	}
	r := newRig(t, nil, func(c *ledger.Config) { c.SlotMax = 1024 }).declare("ron")
	memo, nonce := strings.Repeat("x", record.MaxMemo), uint64(0)
	for range 210 {
		ops := make([]ledger.Op, 512)
		for i := range ops {
			nonce++
			ops[i] = keyed(issue("alice", 1, nonce), fmt.Sprint("k", nonce))
			ops[i].Memo = memo
		}
		r.accept(ops...)
	}
	head, err := r.l.Head(r.ctx())
	if err != nil {
		t.Fatal(err)
	}
	r.stop()
	r.room = unit.Size(64 << 20)
	r.open()
	if is, err := r.l.Head(r.ctx()); err != nil || is != head {
		t.Errorf("head %+v, %v, was %+v", is, err, head)
	}
	if b, err := r.l.Balance(r.ctx(), "alice", "ron", 0); err != nil || b.Posted != amount(nonce) {
		t.Errorf("alice has %v, %v, want %d", b.Posted, err, nonce)
	}
	_, err = r.l.Commit(r.ctx(), []ledger.Op{issue("alice", 1, nonce+1)})
	t.Logf("closed %d, %d bytes, %d free; a commit: %v", r.l.Closed(), r.store.Bytes(), r.store.FreeBytes(), err)
}
