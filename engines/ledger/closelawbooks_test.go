package ledger_test

import (
	"slices"
	"time"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
)

// compare compares all that is readable, but for what is closed.
func (l *closeLaw) compare() {
	l.clock.Advance(time.Second) // the stamps of what a read ends are those of the model
	has, err := l.l.Assets(l.ctx())
	l.must(err)
	should, err := l.model.Assets(l.ctx())
	l.must(err)
	for i := range min(len(has), len(should)) {
		has[i].Seq = should[i].Seq // see asModel
	}
	if !slices.Equal(has, should) {
		l.rt.Fatalf("assets %+v\nthe model %+v", has, should)
	}
	for _, name := range append([]string{"pool", "winner"}, people...) {
		for _, asset := range []string{"ron", "gold"} {
			l.compareAccount(name, asset)
		}
	}
	for _, id := range l.told {
		want, err := l.model.Tx(l.ctx(), l.twins[id])
		l.must(err)
		got, err := l.l.Tx(l.ctx(), id)
		if _, closed := isClosed(err); closed && l.closed(want.Receipt.Seq) {
			continue
		}
		if l.must(err); ledgertest.Brief(l.asModel(got)) != ledgertest.Brief(want) || l.closed(want.Receipt.Seq) {
			l.rt.Fatalf("record %+v\nthe model %+v, horizon %d", got, want, l.h.Seq)
		}
	}
}

func (l *closeLaw) compareAccount(name, asset string) {
	got, err := l.l.Balance(l.ctx(), name, asset, 0)
	l.must(err)
	want, err := l.model.Balance(l.ctx(), name, asset, 0)
	l.must(err)
	got.At, got.Seq, got.Cold = want.At, want.Seq, want.Cold
	if got != want {
		l.rt.Fatalf("balance %+v\nthe model %+v", got, want)
	}
	a, err := l.l.Account(l.ctx(), name)
	l.must(err)
	b, err := l.model.Account(l.ctx(), name)
	l.must(err)
	a.OpenedSeq, a.LastTx = b.OpenedSeq, l.twins[a.LastTx]
	if a != b {
		l.rt.Fatalf("account %+v\nthe model %+v", a, b)
	}
	open, err := l.l.Holds(l.ctx(), ledger.HoldsQuery{Account: name, Limit: 100})
	l.must(err)
	for i := range open.Holds {
		open.Holds[i].TxID = l.twins[open.Holds[i].TxID]
	}
	all, err := l.model.Holds(l.ctx(), ledger.HoldsQuery{Account: name, Limit: 100})
	if l.must(err); !slices.Equal(open.Holds, all.Holds) {
		l.rt.Fatalf("holds %+v\nthe model %+v", open, all)
	}
	l.compareHistory(name, asset)
}

// compareHistory compares a statement, which ends at the horizon with the balance there.
func (l *closeLaw) compareHistory(name, asset string) {
	q := ledger.HistoryQuery{Account: name, Asset: asset, Limit: 500}
	got, err := l.l.History(l.ctx(), q)
	l.must(err)
	q.Limit = 1 << 20
	want, err := l.model.History(l.ctx(), q)
	l.must(err)
	var opening *ledger.Opening
	for len(want.Entries) > 0 && l.closed(want.Entries[0].Receipt.Seq) {
		e, n := want.Entries[0], uint64(1)
		if opening != nil {
			n += opening.Postings
		}
		opening = &ledger.Opening{Period: l.h.Period, At: l.h.At, Postings: n, Posted: e.Posted, Available: e.Available}
		want.Entries = want.Entries[1:]
	}
	if (got.Opening == nil) != (opening == nil) || opening != nil && *got.Opening != *opening ||
		len(got.Entries) != len(want.Entries) {
		l.rt.Fatalf("%s: opening %+v and %d entries\nthe model: %+v and %d", name, got.Opening, len(got.Entries), opening,
			len(want.Entries))
	}
	for i, e := range got.Entries {
		w := want.Entries[i]
		if e.Receipt.Op != w.Receipt.Op || e.Receipt.At != w.Receipt.At || e.Posted != w.Posted || e.Available != w.Available ||
			e.Debit != w.Debit || e.Memo != w.Memo {
			l.rt.Fatalf("%s, entry %d: %+v\nthe model %+v", name, i, e, w)
		}
	}
}
