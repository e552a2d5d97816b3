package clustertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	ledgerapi "ronbox/httpapi/wire/ledger"
	nodeapi "ronbox/httpapi/wire/node"
	walletapi "ronbox/httpapi/wire/wallet"
	"ronbox/store"
)

const (
	pastPayees   = 20   // payments of a batch
	pastPayments = 2000 // of a part
)

// past is a ledger of another year in parts that can be closed one after the other: payments under
// references of the caller of these tests, and settlements.
type past struct {
	file    string // its export
	parts   []part
	content []string // content_b3 of the files of the parts that were closed first
}

// part is a part of a past.
type part struct {
	last uint64 // record
	end  time.Time
}

// principal is the caller of the socket of a node.
func principal() string { return fmt.Sprint("uid:", os.Getuid()) }

// oldPayment is a payment of a past.
func oldPayment(n int) walletapi.Issue {
	return walletapi.Issue{
		To: fmt.Sprint("old/", n%pastPayees), Asset: "ron", AmountMinor: "7", Reference: fmt.Sprint("old-", n),
	}
}

// posted returns what each payee has.
func (p *past) posted() string { return fmt.Sprint(7 * len(p.parts) * pastPayments / pastPayees) }

// newPast returns a ledger that a node has made with the clock of another year.
func newPast(t testing.TB, dir string, parts int) *past {
	t.Helper()
	clock, ctx, path := ledgertest.NewClock(), t.Context(), filepath.Join(dir, "past.db")
	clock.Set(time.Now().Add(-400 * 24 * time.Hour))
	id, err := store.NewIdentity(clock.Now())
	must(t, errors.Join(err, store.Create(path, id)))
	catalog := flow.NewCatalog(nil, nil)
	s := store.New(store.DefaultConfig(), store.Options{Path: path, Catalog: catalog, Now: clock.Now})
	m := ledger.New(ledger.DefaultConfig(), ledger.Deps{Catalog: catalog, Store: s, Now: clock.Now})
	must(t, errors.Join(s.Open(ctx), s.Prepare(ctx)))
	committed := make(chan error, 1)
	go func() { committed <- s.Tasks()[0].Run(ctx) }()
	must(t, m.Recover(ctx))
	_, err = m.Commit(ctx, []ledger.Op{{Code: record.OpAsset, Asset: "ron"}})
	must(t, err)
	p := &past{file: filepath.Join(dir, "past.ndjson")}
	for n := range parts {
		pays(t, m, clock, n)
		head, err := m.Head(ctx)
		must(t, err)
		clock.Advance(time.Hour)
		p.parts = append(p.parts, part{head.Seq, clock.Now()})
	}
	var text []byte
	must(t, m.Export(ctx, 0, 0, func(l record.Line) error { text = l.Append(text); return nil }))
	must(t, m.Close(ctx))
	s.CloseLanes()
	must(t, errors.Join(<-committed, s.Close(), os.WriteFile(p.file, text, 0o600)))
	return p
}

// pays makes the payments of a part.
func pays(t testing.TB, m *ledger.Local, clock *ledgertest.Clock, part int) {
	t.Helper()
	for n := part * pastPayments; n < (part+1)*pastPayments; n += pastPayees {
		clock.Advance(time.Minute)
		var ops []ledger.Op
		for i := range pastPayees {
			o := oldPayment(n + i)
			ops = append(ops, ledger.Op{
				Code: record.OpIssue, To: o.To, Asset: o.Asset, Amount: engines.AmountOf(0, 7),
				Principal: principal(), Reference: o.Reference,
			})
		}
		_, err := m.Commit(t.Context(), ops)
		must(t, err)
	}
	clock.Advance(time.Minute)
	id := fmt.Sprint("epoch ", part)
	_, err := m.Settle(t.Context(), ledger.Once{Domain: "payout", ID: id, Digest: b3.Sum([]byte(id))},
		[]ledger.Op{{Code: record.OpIssue, To: "pool", Asset: "ron", Amount: engines.AmountOf(0, 70)}})
	must(t, err)
}

// asks asks a node to close the next part that is not closed, unless a closing is under way.
func (p *past) asks(t testing.TB, n *node, closed int, fast bool) {
	t.Helper()
	_, err := nodeapi.NewClient(n.socketFor(t, patience)).CloseLedger(t.Context(), nodeapi.LedgerCloseRequest{
		Before: p.parts[closed].end.UTC().Format(time.RFC3339), Fast: fast,
	})
	if refused, ok := errors.AsType[*wire.Problem](err); ok {
		switch refused.Reason {
		case nodeapi.ReasonCloseRunning, nodeapi.ReasonCloseTooRecent:
			return // the node had just started, and had not looked yet
		}
	}
	if !client.Retryable(err) { // else the caller asks again
		must(t, err)
	}
}

// closed returns the state of the closing of a node, and the number of closed parts. Each has the
// records of its part, and a file of the same content as at any node before.
func (p *past) closed(t testing.TB, socket *client.Client) (state string, n int, err error) {
	t.Helper()
	s, err := nodeapi.NewClient(socket).LedgerClosing(t.Context())
	if err != nil {
		return "", 0, err
	}
	if s.State == "failed" {
		t.Fatalf("the closing failed: %s", s.Error)
	}
	list, err := ledgerapi.NewClient(socket).LedgerPeriods(t.Context(), 0)
	if err != nil {
		return "", 0, err
	}
	for i, one := range list.Periods {
		if i == len(p.content) {
			p.content = append(p.content, one.ContentB3)
		}
		if one.ContentB3 != p.content[i] || one.ToSeq != p.parts[i].last {
			t.Fatalf("period %d is %+v, want records up to %d and the content %s", i+1, one, p.parts[i].last, p.content[i])
		}
	}
	return s.State, len(list.Periods), nil
}

// refused repeats a payment of a past, which is refused while it is closed, and answered as before
// otherwise. Nobody is paid twice.
func (p *past) refused(t testing.TB, socket *client.Client, n int) {
	t.Helper()
	w, key := walletapi.NewClient(socket), fmt.Sprintf("again-%d-%d", n, time.Now().UnixNano())
	must(t, repeat(t.Context(), func(ctx context.Context) error {
		_, err := w.Issue(ctx, key, oldPayment(n))
		if refused, ok := errors.AsType[*wire.Problem](err); ok && refused.Reason == "period_closed" {
			return nil
		}
		return err
	}))
	var b walletapi.Balance
	err := repeat(t.Context(), func(ctx context.Context) (err error) {
		b, err = w.Balance(ctx, oldPayment(n).To, "ron", 0)
		return err
	})
	if must(t, err); b.PostedMinor != p.posted() {
		t.Errorf("%s has %s, want %s", oldPayment(n).To, b.PostedMinor, p.posted())
	}
}

// whole fails unless each record since the first is in a database or in the files of periods. It
// reports whether a period is closed.
func (p *past) whole(t testing.TB, n *node, database, periods string) (closed bool) {
	t.Helper()
	var doc struct {
		OK      bool   `json:"ok"`
		Records uint64 `json:"records"`
		Closed  uint64 `json:"closed_periods"`
		Head    struct {
			Seq uint64 `json:"seq"`
		} `json:"head"`
	}
	n.must(t, &doc, "ledger", "verify", database, "--json")
	if closed = doc.Closed != 0; closed {
		n.must(t, &doc, "ledger", "verify", database, "--periods", periods, "--json")
	}
	if last := p.parts[len(p.parts)-1].last; !doc.OK || doc.Records != doc.Head.Seq || doc.Records < last {
		t.Fatalf("records are missing: %+v", doc)
	}
	return closed
}
