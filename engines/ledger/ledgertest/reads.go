package ledgertest

import (
	"context"
	"fmt"
	"slices"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// Find returns the outcome of a key since notBefore.
func (m *Model) Find(
	ctx context.Context,
	k ledger.DedupeKey,
	fp b3.Digest,
	notBefore int64,
) (out ledger.Outcome, found bool, err error) {
	err = m.with(ctx, func() error {
		b := &m.books
		done, ok := b.keys[k]
		switch {
		case !ok || done.at <= notBefore:
			return nil
		case done.digest != fp:
			out, found = ledger.Outcome{Reject: refuse(record.IdemConflict)}, true
			return nil
		}
		out, found = m.outcome(b.again(done.seq)), true
		m.describe(&out, done.seq)
		return nil
	})
	return out, found, err
}

// describe adds what only a look at a record tells.
func (m *Model) describe(out *ledger.Outcome, seq uint64) {
	e := m.books.entries[seq-1]
	out.Memo = e.rec.Memo
	out.Parties = ledger.Parties{From: m.books.name(e.rec.From), To: m.books.name(e.rec.To)}
}

// Balance reads an account, waiting for the record minSeq.
func (m *Model) Balance(ctx context.Context, account, asset string, minSeq uint64) (v ledger.BalanceView, err error) {
	news := m.bus.Subscribe("balance")
	defer news.Close()
	for {
		err := m.withHolds(ctx, func() error {
			v = m.balance(account, asset)
			return nil
		})
		if err != nil || v.Seq >= minSeq {
			return v, err
		}
		if _, _, err := news.Recv(ctx); err != nil {
			return ledger.BalanceView{}, err
		}
	}
}

func (m *Model) balance(account, asset string) ledger.BalanceView {
	s := m.books.of(acctAsset{Account: account, Asset: asset})
	_, known := m.books.accounts[account]
	v := ledger.BalanceView{
		Account: account,
		Asset:   asset,
		Seq:     uint64(len(m.books.entries)),
		Known:   known,
		Held:    amount(s.held),
	}
	if v.Seq > 0 {
		v.At = m.books.entries[v.Seq-1].rec.At
	}
	if s.balance().Sign() < 0 {
		v.Issued = amount(minus(s.debits, s.credits))
		return v
	}
	v.Posted, v.Available = amount(s.balance()), amount(s.available())
	return v
}

// Account reads the header of an account.
func (m *Model) Account(ctx context.Context, account string) (v ledger.AccountView, err error) {
	err = m.with(ctx, func() error {
		v.Account = account
		a, ok := m.books.accounts[account]
		if !ok {
			return nil
		}
		v.Known, v.LastNonce, v.Flags, v.OpenedSeq = true, a.nonce, a.flags, a.opened
		v.OpenedAt = m.books.entries[a.opened-1].rec.At
		if a.nonced != 0 {
			v.LastTx = m.books.entries[a.nonced-1].receipt.TxID
		}
		return nil
	})
	return v, err
}

// Assets lists the declared assets.
func (m *Model) Assets(ctx context.Context) (out []ledger.AssetView, err error) {
	err = m.with(ctx, func() error {
		for name, a := range m.books.assets {
			s := m.books.of(acctAsset{Account: engines.IssuanceAccount(name), Asset: name})
			v := ledger.AssetView{
				Asset:      name,
				Seq:        a.seq,
				DeclaredAt: m.books.entries[a.seq-1].rec.At,
				Issued:     amount(minus(s.debits, s.credits)),
				Decimals:   a.decimals,
				Scaled:     a.scaled != 0,
			}
			out = append(out, v)
		}
		slices.SortFunc(out, func(a, b ledger.AssetView) int { return int(a.Seq) - int(b.Seq) })
		return nil
	})
	return out, err
}

// find is the seq of a record that was given out as id.
func (b *books) find(id record.TxID) (uint64, error) {
	seq := id.Seq()
	if seq == 0 || seq > uint64(len(b.entries)) || b.entries[seq-1].receipt.TxID != id {
		return 0, ledger.ErrNotFound
	}
	return seq, nil
}

// Tx reads one record's outcome.
func (m *Model) Tx(ctx context.Context, id record.TxID) (out ledger.Outcome, err error) {
	err = m.with(ctx, func() error {
		seq, err := m.books.find(id)
		if err != nil {
			return err
		}
		v := m.books.again(seq)
		v.replayed = false
		out = m.outcome(v)
		m.describe(&out, seq)
		return nil
	})
	return out, err
}

// Reference reads the outcome of the record done under a reference.
func (m *Model) Reference(ctx context.Context, principal, text string) (out ledger.Outcome, err error) {
	err = m.with(ctx, func() error {
		done, ok := m.books.refs[referenceOf{principal, text}]
		if !ok {
			return ledger.ErrNotFound
		}
		v := m.books.again(done.seq)
		v.replayed = false
		out = m.outcome(v)
		m.describe(&out, done.seq)
		return nil
	})
	return out, err
}

// History reads a page of a statement.
func (m *Model) History(ctx context.Context, q ledger.HistoryQuery) (page ledger.Page, err error) {
	err = m.with(ctx, func() error {
		seqs := slices.Clone(m.books.of(acctAsset{Account: q.Account, Asset: q.Asset}).history)
		seqs = slices.DeleteFunc(seqs, func(seq uint64) bool {
			at := m.books.entries[seq-1].rec.At
			return at < q.Since || q.Until != 0 && at >= q.Until
		})
		if q.NewestFirst {
			slices.Reverse(seqs)
		}
		if q.Cursor != "" {
			i := slices.IndexFunc(seqs, func(seq uint64) bool { return cursor(q, seq) == q.Cursor })
			if i < 0 {
				return ledger.ErrCursor
			}
			seqs = seqs[i+1:]
		}
		if len(seqs) > q.Limit {
			seqs = seqs[:q.Limit]
			page.Next = cursor(q, seqs[q.Limit-1])
		}
		for _, seq := range seqs {
			page.Entries = append(page.Entries, m.entry(q.Account, seq))
		}
		return nil
	})
	return page, err
}

// cursor names the place behind a record in the answer to q.
func cursor(q ledger.HistoryQuery, seq uint64) string {
	return fmt.Sprintf("%d.%s.%s.%t", seq, q.Account, q.Asset, q.NewestFirst)
}

func (m *Model) entry(account string, seq uint64) ledger.Entry {
	e, ref := m.books.entries[seq-1], m.books.accounts[account].ref
	out := ledger.Entry{Receipt: m.receipt(seq), Memo: e.rec.Memo, Debit: e.rec.From == ref}
	for _, im := range e.rec.Images {
		if im.Account == ref {
			out.Posted, _ = im.State.Balance()
			out.Available, _ = im.State.Available()
		}
	}
	return out
}

// Roots lists batch headers.
func (m *Model) Roots(ctx context.Context, since uint64, n int) (out []record.Batch, err error) {
	err = m.with(ctx, func() error {
		if since < uint64(len(m.books.batches)) {
			rest := m.books.batches[since:]
			out = slices.Clone(rest[:min(n, len(rest))])
		}
		return nil
	})
	return out, err
}
