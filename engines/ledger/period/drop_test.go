package period_test

import (
	"slices"
	"testing"
	"time"

	"ronbox/appliance/merkle"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// pay makes payments without keys, so that their records can be dropped: transfers, and holds of
// which some stay open.
func (n *node) pay(payments int) {
	n.Helper()
	one := engines.AmountOf(0, 1)
	n.do(ledger.Op{Code: record.OpIssue, To: "alice", Asset: "ron", Amount: engines.AmountOf(0, 1000)})
	for i := range payments {
		n.do(ledger.Op{Code: record.OpTransfer, From: "alice", To: "bob", Asset: "ron", Amount: one})
		if i%5 != 0 {
			continue
		}
		hold := n.do(ledger.Op{
			Code: record.OpHold, From: "alice", To: "shop", Asset: "ron", Amount: one, ExpiresIn: time.Hour * 24 * 30,
		})[0]
		if i%2 == 0 {
			n.do(ledger.Op{Code: record.OpRelease, Hold: hold.Receipt.TxID})
		}
	}
	n.must(n.l.Flush(n.Context()))
}

// TestDropLeavesTheRest closes periods and drops their rows in small commands, and looks at what is
// left: nothing up to the horizon but peaks and open holds, and all of what comes after.
func TestDropLeavesTheRest(t *testing.T) {
	n := newNode(t, 1)
	for round := range 4 {
		n.pay(291) // the last record ends a hold
		want := n.state()
		n.pay(7)
		_, err := ledgertest.Close(t.Context(), n.s, want.seq)
		n.must(err)
		after := n.after()
		for done, steps := false, 0; !done; steps++ {
			done, err = ledgertest.Drop(t.Context(), n.s, 1, 97+round)
			n.must(err)
			n.compare(want)
		}
		n.dropped()
		if left := n.after(); left != after {
			t.Errorf("behind the horizon are %+v, before dropping %+v", left, after)
		}
	}
}

// rest counts the rows after the horizon.
type rest struct{ records, batches, nodes, marks, holds int }

func (n *node) after() (out rest) {
	n.Helper()
	n.view(func(r store.Reader) {
		h := tables.GetHorizon(r)
		for range tables.Raws(r, h.Seq+1, 1<<62) {
			out.records++
		}
		for range tables.Batches(r, h.Batch+1, 1<<62) {
			out.batches++
		}
		for pos := merkle.LogCount(h.Batch); ; pos++ {
			if _, known := tables.LogNode(r, pos); !known {
				break
			}
			out.nodes++
		}
		for _, seq := range tables.Marks(r) {
			if seq > h.Seq {
				out.marks++
			}
		}
		for range tables.Holds(r, h.Seq+1) {
			out.holds++
		}
	})
	return out
}

// dropped checks that nothing is left up to the horizon, except what stays.
func (n *node) dropped() {
	n.Helper()
	n.view(func(r store.Reader) {
		h := tables.GetHorizon(r)
		for seq := range tables.Raws(r, 0, h.Seq+1) {
			n.Errorf("record %d is left", seq)
		}
		head, _ := tables.GetHead(r) // its row has the newest headers
		for no := range tables.Batches(r, 0, min(h.Batch, head.Batches-head.Tail.Count())+1) {
			n.Errorf("batch %d is left", no)
		}
		for pos := range merkle.LogCount(h.Batch) {
			_, known := tables.LogNode(r, pos)
			if known != slices.Contains(merkle.LogPeaks(h.Batch), pos) {
				n.Errorf("node %d is there: %v", pos, known)
			}
		}
		for k, seq := range tables.Marks(r) {
			if seq <= h.Seq {
				n.Errorf("mark %+v is left", k)
			}
		}
		for seq, hold := range tables.Holds(r, 0) {
			if !hold.Open() && hold.Closing <= h.Seq {
				n.Errorf("hold %d is left", seq)
			}
		}
		if c := tables.GetClosing(r); c.Step != 0 {
			n.Errorf("a closing is at %s", c.Step)
		}
		for range tables.BaseAt(r, h.Generation-1).Rows() {
			n.Errorf("the base of before has rows")
			break
		}
	})
}
