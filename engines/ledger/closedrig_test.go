package ledger_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// edit is a command of a test, which changes the file behind the ledger's back.
type edit func(r store.Reader, at store.Stamp, w *store.Writes)

func (edit) Kind() string { return "ledger.edit/1" }

func (c edit) Apply(r store.Reader, at store.Stamp, w *store.Writes) (struct{}, error) {
	c(r, at, w)
	return struct{}{}, nil
}

func (r *rig) edit(c edit) {
	r.t.Helper()
	if _, err := store.Commit[struct{}](r.ctx(), r.store, store.Bulk, c); err != nil {
		r.t.Fatal(err)
	}
}

// bucketOf returns the bucket ledger/name.
func bucketOf(t testing.TB, name string) *store.Bucket {
	for _, b := range tables.Buckets() {
		if b.Name == "ledger/"+name {
			return b
		}
	}
	t.Fatalf("there is no bucket %s", name)
	return nil
}

// closeHead closes a period that ends with the newest record.
func (r *rig) closeHead() tables.Horizon {
	r.t.Helper()
	if err := r.l.Flush(r.ctx()); err != nil {
		r.t.Fatal(err)
	}
	if _, err := ledgertest.Drop(r.ctx(), r.store, 0, 4096); err != nil { // of the period before
		r.t.Fatal(err)
	}
	head, err := r.l.Head(r.ctx())
	if err != nil {
		r.t.Fatal(err)
	}
	h, err := ledgertest.Close(r.ctx(), r.store, head.Seq)
	if err != nil || h.Seq != head.Seq {
		r.t.Fatalf("the horizon is %+v, the head %+v, %v", h, head, err)
	}
	return h
}

// dropped is the part of the rows of a closed period that a test drops.
type dropped string

const (
	droppedNone dropped = "nothing dropped"
	droppedHalf dropped = "half dropped"
	droppedAll  dropped = "all dropped"
)

var allDropped = []dropped{droppedNone, droppedHalf, droppedAll}

// drop drops rows of the period that was closed last.
func (r *rig) drop(d dropped) {
	r.t.Helper()
	commands, rows := 0, 4096
	switch d {
	case droppedNone:
		return
	case droppedHalf:
		commands, rows = 3, 100
	}
	if done, err := ledgertest.Drop(r.ctx(), r.store, commands, rows); err != nil || done != (d == droppedAll) {
		r.t.Fatalf("%s: done %v, %v", d, done, err)
	}
}

// isClosed returns the period of a *ClosedError.
func isClosed(err error) (period uint64, closed bool) {
	var c *ledger.ClosedError
	if !errors.As(err, &c) {
		return 0, false
	}
	return c.Period, true
}

// past is a ledger with a closed period, and what it answered before the closing.
type past struct {
	*rig
	h        tables.Horizon
	old      []record.TxID // of single records in the period
	open     []record.TxID // holds that were open at its end
	ended    record.TxID   // a hold that was not
	root     record.Head   // before the closing
	accounts ledger.AccountsPage
	alice    ledger.AccountView
	assets   []ledger.AssetView
	holds    ledger.HoldsPage
	balance  ledger.BalanceView
	cursors  [2]string // of alice's history, newest and oldest first
	postings int       // of alice
}

// newPast makes records of each kind, and closes the period that ends with them.
func newPast(t testing.TB, change ...func(*ledger.Config)) *past {
	clock := ledgertest.NewClock()
	p := &past{rig: newRig(t, clock, change...).declare("ron", "sun")}
	p.accept(ledger.Op{Code: record.OpScale, Asset: "ron", Amount: amount(2)})
	one := func(o ledger.Op) record.TxID {
		id := p.accept(o)[0].Receipt.TxID
		p.old = append(p.old, id)
		return id
	}
	one(issue("alice", 100_000, 1))
	one(transfer("alice", "bob", 10, 1))
	one(ledger.Op{Code: record.OpFlags, From: "carol", Set: record.NoDebit})
	for n := range uint64(3) {
		o := transfer("alice", "bob", 100+n, 2+n)
		o.Code, o.ExpiresIn = record.OpHold, time.Hour*time.Duration(1+n)
		p.open = append(p.open, one(o))
	}
	o := transfer("alice", "bob", 50, 5)
	o.Code, o.ExpiresIn = record.OpHold, time.Hour
	p.ended = one(o)
	one(ledger.Op{Code: record.OpCapture, Hold: p.ended, Amount: amount(20)})
	p.accept(ledger.Op{Code: record.OpBatch, Ops: []ledger.Op{transfer("alice", "bob", 1, 0), transfer("bob", "dave", 2, 0)}})
	if _, err := p.l.Settle(p.ctx(), ledger.Once{Domain: "d", ID: "1"}, []ledger.Op{transfer("alice", "bob", 3, 0)}); err != nil {
		t.Fatal(err)
	}
	for range 600 { // so that there are marks
		p.accept(transfer("alice", "bob", 1, 0))
	}
	p.note()
	p.h = p.closeHead()
	return p
}

// note keeps what is answered now.
func (p *past) note() {
	t, ctx := p.t, p.ctx()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	p.root, err = p.l.Head(ctx)
	must(err)
	p.accounts, err = p.l.Accounts(ctx, ledger.AccountsQuery{Limit: 100, Asset: "ron"})
	must(err)
	p.alice, err = p.l.Account(ctx, "alice")
	must(err)
	p.assets, err = p.l.Assets(ctx)
	must(err)
	p.holds, err = p.l.Holds(ctx, ledger.HoldsQuery{Account: "alice", Limit: 10})
	must(err)
	p.balance, err = p.l.Balance(ctx, "alice", "ron", 0)
	must(err)
	for i := range p.cursors {
		page, err := p.l.History(ctx, p.history(i == 0, 10))
		must(err)
		p.cursors[i] = page.Next
	}
	q := p.history(true, 500)
	for done := false; !done; {
		page, err := p.l.History(ctx, q)
		must(err)
		p.postings += len(page.Entries)
		q.Cursor, done = page.Next, page.Next == ""
	}
}

func (p *past) history(newest bool, limit int) ledger.HistoryQuery {
	return ledger.HistoryQuery{Account: "alice", Asset: "ron", Limit: limit, NewestFirst: newest}
}

// eachPast runs fn on ledgers that have dropped more or less of a period, before and after a boot.
func eachPast(t *testing.T, fn func(t *testing.T, p *past)) {
	for _, d := range allDropped {
		for _, booted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, booted %v", d, booted), func(t *testing.T) {
				p := newPast(t)
				p.drop(d)
				if booted {
					p.reopen()
				}
				fn(t, p)
			})
		}
	}
}

// closedIn reports whether err is that a period is closed.
func closedIn(err error, period uint64) bool {
	n, closed := isClosed(err)
	return closed && n == period
}

// sound fails unless the ledger is not in safe mode, and does not enter it at a boot.
func (p *past) sound() {
	p.t.Helper()
	if why := p.l.SafeMode(); why != "" {
		p.t.Errorf("safe mode: %s", why)
	}
	p.reopen()
}

func seqKey(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }
