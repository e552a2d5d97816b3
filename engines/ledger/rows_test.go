package ledger

import (
	"testing"

	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store/storetest"
)

// forget evicts a clean row from memory.
func (s *stage) forget(k tables.StateKey) {
	for s.b.states.find(k) != nil || s.b.accounts.find(k.Account) != nil {
		for range 3 {
			s.b.states.pinnedKeys()
			s.b.accounts.pinnedKeys()
			s.b.states.evict(0)
			s.b.accounts.evict(0)
		}
	}
}

// old returns the current rows of the payee in the file.
func (s *stage) old() *rows {
	r := &rows{accountAt: s.b.cur.Seq, balanceAt: s.b.cur.Seq}
	r.account, _ = tables.GetAccount(s.tx.Reader(), payee.Account)
	r.balance, _ = tables.GetBalance(s.tx.Reader(), payee.Account, payee.Asset)
	return r
}

// spend lets the payee spend its only unit, with from as its resolved rows.
func (s *stage) spend(t *testing.T, nonce uint64, from party) record.Result {
	t.Helper()
	most := engines.AmountOf(1, 0)
	d := draft{ops: []Op{
		{
			Code:   record.OpTransfer,
			From:   "a",
			To:     "b",
			Asset:  "ron",
			Amount: engines.AmountOf(0, 1),
			Nonce:  nonce,
			Limits: &Limits{AccountTotal: most, PerOp: most},
		},
	}}
	c := d.command()
	c.ops[0].from = from
	out, err := storetest.Do(s.tx, c)
	if none, ok := err.(refusal); ok {
		out = none.posted
	} else if err != nil {
		t.Fatal(err)
	}
	s.end()
	return out.results[0].code
}

func newPayee(t *testing.T) *stage {
	s := newStage(t)
	s.do(t, draft{ops: []Op{{Code: record.OpAsset, Asset: "ron"}}})
	s.do(t, issueOf(1))
	s.end()
	s.pass(t)
	return s
}

// Rows carried by an op are used instead of those of the file.
func TestRowsReadAlongTheWay(t *testing.T) {
	s := newPayee(t)
	s.forget(payee)
	old := s.old()
	old.account.LastNonce = 6 // to be told from the file's
	if code := s.spend(t, 7, party{ref: payee.Account, rows: old}); code != record.Accepted {
		t.Errorf("with rows that are as in the file: %v", code)
	}
}

// Carried rows are ignored once a later record may have changed them, so that no amount is spent
// twice.
func TestRowsReadBeforeAChange(t *testing.T) {
	s := newPayee(t)
	s.forget(payee)
	old := s.old()
	if code := s.spend(t, 1, party{}); code != record.Accepted {
		t.Fatalf("the first: %v", code)
	}
	s.pass(t)
	s.forget(payee)
	if code := s.spend(t, 1, party{ref: payee.Account, rows: old}); code != record.NonceReused {
		t.Errorf("spent twice by rows that were out of date: %v", code)
	}
}

// Carried rows of the file are ignored if the row was in memory when they were read. They may be
// older, and the cell may since have been evicted.
func TestRowsBesideACell(t *testing.T) {
	s := newPayee(t)
	if code := s.spend(t, 1, party{}); code != record.Accepted {
		t.Fatalf("the first: %v", code)
	}
	old := s.old() // as of the pass before
	old.accountAt, old.balanceAt = 0, 0
	carried := party{
		ref:     payee.Account,
		account: s.b.accounts.find(payee.Account),
		state:   s.b.states.find(payee),
		rows:    old,
	}
	s.pass(t)
	s.forget(payee)
	if code := s.spend(t, 2, carried); code != record.InsufficientFunds {
		t.Errorf("spent twice by a row that was out of date: %v", code)
	}
}
