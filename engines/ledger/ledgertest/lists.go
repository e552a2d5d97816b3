package ledgertest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// Holds is a read.
func (f *Faulty) Holds(ctx context.Context, q ledger.HoldsQuery) (ledger.HoldsPage, error) {
	return read(ctx, f, "holds "+q.Account,
		func(ctx context.Context) (ledger.HoldsPage, error) { return f.inner.Holds(ctx, q) })
}

// Hold is a read.
func (f *Faulty) Hold(ctx context.Context, id record.TxID) (ledger.HoldView, error) {
	return read(ctx, f, "hold "+id.String(),
		func(ctx context.Context) (ledger.HoldView, error) { return f.inner.Hold(ctx, id) })
}

// Accounts is a read.
func (f *Faulty) Accounts(ctx context.Context, q ledger.AccountsQuery) (ledger.AccountsPage, error) {
	return read(ctx, f, "accounts "+q.Prefix,
		func(ctx context.Context) (ledger.AccountsPage, error) { return f.inner.Accounts(ctx, q) })
}

// Holds pages through the open holds of an account. After is the number of holds that were shown.
func (m *Model) Holds(ctx context.Context, q ledger.HoldsQuery) (page ledger.HoldsPage, err error) {
	err = m.withHolds(ctx, func() error {
		var seqs []uint64
		for seq, h := range m.books.holds {
			if h.closed == record.Accepted && (h.from == q.Account || h.to == q.Account) {
				seqs = append(seqs, seq)
			}
		}
		slices.SortFunc(seqs, func(x, y uint64) int {
			return cmp.Or(cmp.Compare(m.books.holds[x].expires, m.books.holds[y].expires), cmp.Compare(x, y))
		})
		skip := 0
		if q.After != "" {
			if _, err := fmt.Sscan(q.After, &skip); err != nil || skip < 1 {
				return ledger.ErrCursor
			}
		}
		seqs = seqs[min(skip, len(seqs)):]
		if len(seqs) > q.Limit {
			seqs, page.Next = seqs[:q.Limit], fmt.Sprint(skip+q.Limit)
		}
		for _, seq := range seqs {
			page.Holds = append(page.Holds, m.books.view(seq))
		}
		return nil
	})
	return page, err
}

// view describes the hold that the record seq made.
func (b *books) view(seq uint64) ledger.HoldView {
	h := b.holds[seq]
	v := ledger.HoldView{
		TxID: b.entries[seq-1].receipt.TxID, From: h.from, To: h.to, Asset: h.asset,
		Amount: amount(h.amount), At: h.at, Expires: h.expires,
	}
	for i := range b.entries {
		if e := &b.entries[i]; e.rec.Hold == seq {
			v.Closed, v.ClosedAt, v.Closing = e.rec.Op, e.rec.At, e.receipt.TxID
			if e.rec.Op == record.OpCapture {
				v.Captured = e.receipt.Amount
			}
		}
	}
	return v
}

// Hold reads one hold.
func (m *Model) Hold(ctx context.Context, id record.TxID) (v ledger.HoldView, err error) {
	err = m.withHolds(ctx, func() error {
		seq, err := m.books.find(id)
		if err != nil {
			return err
		}
		if _, is := m.books.holds[seq]; !is {
			return ledger.ErrNotFound
		}
		v = m.books.view(seq)
		return nil
	})
	return v, err
}

// Accounts pages through the accounts by name.
func (m *Model) Accounts(ctx context.Context, q ledger.AccountsQuery) (page ledger.AccountsPage, err error) {
	err = m.withHolds(ctx, func() error {
		var names []string
		for name := range m.books.accounts {
			if strings.HasPrefix(name, q.Prefix) && name > q.After {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		if len(names) > q.Limit {
			names = names[:q.Limit]
			page.Next = names[q.Limit-1]
		}
		for _, name := range names {
			a := m.books.accounts[name]
			e := ledger.AccountEntry{Account: name, Flags: a.flags, OpenedAt: m.books.entries[a.opened-1].rec.At}
			if q.Asset != "" {
				e.Balance = m.balance(name, q.Asset)
			}
			page.Accounts = append(page.Accounts, e)
		}
		return nil
	})
	return page, err
}

// lists: the open holds of an account and the accounts, by the page, and what became of a hold.
func lists(s *suite) {
	s.accept(s.issue("alice", 100))
	s.accept(s.issue("al", 100))
	late := s.accept(s.hold("alice", "shop", 10, 3*time.Minute))
	soon := s.accept(s.hold("alice", "shop", 20, time.Minute))
	other := s.accept(s.hold("al", "alice", 5, 2*time.Minute))
	for account, want := range map[string][]record.TxID{
		"alice": {soon.TxID, other.TxID, late.TxID}, "shop": {soon.TxID, late.TxID}, "al": {other.TxID}, "nobody": nil,
	} {
		if got := s.openHolds(account, 1); !slices.Equal(got, want) {
			s.Fatalf("%s: open holds %v, want %v", account, got, want)
		}
	}
	v := s.hold1(soon.TxID)
	if v.From != "alice" || v.To != "shop" || v.Asset != "ron" || v.Amount != ron(20) || v.At != soon.At ||
		v.Expires != soon.At+int64(time.Minute) || v.Closed != 0 {
		s.Fatalf("%+v", v)
	}
	paid := s.accept(capture(soon.TxID, 15))
	if v := s.hold1(soon.TxID); v.Closed != record.OpCapture || v.Captured != ron(15) || v.Closing != paid.TxID ||
		v.ClosedAt != paid.At {
		s.Fatalf("%+v after %+v", v, paid)
	}
	s.accept(release(other.TxID))
	if v := s.hold1(other.TxID); v.Closed != record.OpRelease || !v.Captured.IsZero() {
		s.Fatalf("%+v", v)
	}
	if got := s.openHolds("alice", 7); !slices.Equal(got, []record.TxID{late.TxID}) {
		s.Fatalf("open holds %v", got)
	}
	_, err := s.Client.Hold(s.Context(), paid.TxID)
	s.wants(err, ledger.ErrNotFound)
	_, err = s.Client.Holds(s.Context(), ledger.HoldsQuery{Account: "alice", After: "?", Limit: 1})
	s.wants(err, ledger.ErrCursor)

	s.accept(ledger.Op{Code: record.OpFlags, From: "al", Set: record.NoCredit})
	for prefix, want := range map[string]string{
		"": "al alice shop sys:issue:ron", "al": "al alice", "ali": "alice", "b": "",
	} {
		for _, limit := range []int{1, 2, 100} {
			if got := s.accountNames(prefix, limit); got != want {
				s.Fatalf("accounts %q by %d: %s, want %s", prefix, limit, got, want)
			}
		}
	}
	page, err := s.Client.Accounts(s.Context(), ledger.AccountsQuery{Prefix: "al", Limit: 1})
	if err != nil || page.Next != "al" || page.Accounts[0].Flags != record.NoCredit || page.Accounts[0].OpenedAt == 0 {
		s.Fatalf("%+v, %v", page, err)
	}
	page, err = s.Client.Accounts(s.Context(), ledger.AccountsQuery{Prefix: "alice", Limit: 1, Asset: "ron"})
	if err != nil || page.Accounts[0].Balance.Posted != ron(85) || page.Accounts[0].Balance.Available != ron(75) {
		s.Fatalf("%+v, %v", page, err)
	}
}

func (s *suite) hold1(id record.TxID) ledger.HoldView {
	s.Helper()
	v, err := s.Client.Hold(s.Context(), id)
	s.must(err)
	return v
}

// openHolds reads all pages of an account's open holds.
func (s *suite) openHolds(account string, limit int) (all []record.TxID) {
	s.Helper()
	q := ledger.HoldsQuery{Account: account, Limit: limit}
	for {
		page, err := s.Client.Holds(s.Context(), q)
		s.must(err)
		for _, h := range page.Holds {
			all = append(all, h.TxID)
		}
		if q.After = page.Next; q.After == "" {
			return all
		}
	}
}

// accountNames reads all pages of the accounts.
func (s *suite) accountNames(prefix string, limit int) string {
	s.Helper()
	var all []string
	q := ledger.AccountsQuery{Prefix: prefix, Limit: limit}
	for {
		page, err := s.Client.Accounts(s.Context(), q)
		s.must(err)
		for _, a := range page.Accounts {
			all = append(all, a.Account)
		}
		if q.After = page.Next; q.After == "" {
			return strings.Join(all, " ")
		}
	}
}
