package ledger_test

import (
	"errors"
	"strings"
	"testing"

	"ronbox/appliance/host/hosttest"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/store"
)

// A group for which the file has no room leaves no trace in the file, in memory or on the bus.
func TestFullLeavesNoTrace(t *testing.T) {
	if hosttest.UnderRace() {
		t.Skip("nothing runs beside it: left to the run without -race")
	}
	memory := store.DefaultAmnesiaConfig()
	memory.MaxBytes = 32 << 20
	r := newRig(t, nil, func(*ledger.Config) {})
	r.stop()
	r.memory = &memory
	r.open()
	r.declare("ron")
	news := r.l.Events("test")
	defer news.Close()
	memo, nonce := strings.Repeat("x", record.MaxMemo), uint64(0)
	var last ledger.Committed
	var err error
	for err == nil {
		ops := make([]ledger.Op, 512)
		for i := range ops {
			ops[i] = issue("alice", 1, nonce+uint64(i)+1)
			ops[i].Memo = memo
		}
		var outs []ledger.Outcome
		if outs, err = r.l.Commit(r.ctx(), ops); err == nil {
			nonce += uint64(len(ops))
			if outs[0].Reject != nil {
				t.Fatal(outs[0].Reject)
			}
			last, _, _ = news.Next()
		}
	}
	if !errors.Is(err, ledger.ErrFull) {
		t.Fatalf("err = %v, want ErrFull", err)
	}
	if e, _, ok := news.Next(); ok {
		t.Errorf("an event of what is not there: %+v", e)
	}
	head, err := r.l.Head(r.ctx())
	if err != nil || head.Seq != last.Last || head.LastRoot != last.Root {
		t.Errorf("head is %+v, %v; the last batch was %+v", head, err, last)
	}
	if b, err := r.l.Balance(r.ctx(), "alice", "ron", 0); err != nil || b.Posted != amount(nonce) {
		t.Errorf("alice has %v, %v, want %d", b.Posted, err, nonce)
	}
	if a, err := r.l.Account(r.ctx(), "sys:issue:ron"); err != nil || a.LastNonce != nonce {
		t.Errorf("the last nonce is %d, %v, want %d", a.LastNonce, err, nonce)
	}
	r.verify()
}
