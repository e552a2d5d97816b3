package httpapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/unit"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/period"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/engines/wallet"
	"ronbox/httpapi"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/front"
	ledgerhttp "ronbox/httpapi/ledger"
	ledgerapi "ronbox/httpapi/wire/ledger"
	walletapi "ronbox/httpapi/wire/wallet"
	"ronbox/store"
)

const (
	txid      = "tx_" + someULID
	ledgerNow = int64(1_800_000_000_123_456_789)
)

// fakeWallet answers from its fields; err, when set, is what every call gets.
type fakeWallet struct {
	mu       sync.Mutex
	err      error
	notReady error
	wait     bool // until the context ends
	replay   bool
	status   int
	calls    int
	key      string
	by       engines.Actor
	order    ledger.Op
	orders   []ledger.Op
	opens    bool
	existing bool
	atomic   bool
	minSeq   uint64
	query    ledger.HistoryQuery
	holds    ledger.HoldsQuery
	accounts ledger.AccountsQuery
	payments []ledger.PaymentFilter
	closed   record.Op     // of the hold that is asked for
	decimals int           // of every asset
	until    time.Duration // how long the last call might have taken
	seq      uint64        // the newest record
	exported [][2]uint64
	broken   uint64           // the record at which an export fails, 0 for none
	first    uint64           // the first record and batch after the horizon
	reached  func(seq uint64) // of each record that is exported, nil: nobody asks
	issued   string           // of every account, "" for none
	bus      *flow.Broadcast[ledger.Committed]
}

func newFakeWallet(cat *flow.Catalog) *fakeWallet {
	return &fakeWallet{seq: 3, status: 200, bus: flow.NewBroadcast[ledger.Committed](cat, flow.Spec{
		Service:   "wallet",
		Name:      "ledger_bus",
		Cap:       8,
		Policy:    flow.DropOldest,
		Producers: []string{"committer"},
		Consumers: []string{"http"},
	})}
}

func (f *fakeWallet) set(err error) { f.mu.Lock(); f.err = err; f.mu.Unlock() }

func (f *fakeWallet) call(ctx context.Context, by engines.Actor) error {
	f.mu.Lock()
	f.calls++
	f.by = by
	if at, ok := ctx.Deadline(); ok {
		f.until = time.Until(at)
	}
	err, wait := f.err, f.wait
	f.mu.Unlock()
	if wait {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return err
}

// holder lets in everyone as one who holds scopes.
type holder struct{ scopes []string }

func (h holder) Check(string, auth.Request) (engines.Actor, error) {
	return engines.Actor{
		CapID:     "tid",
		Principal: "p",
		Scopes:    h.scopes,
		Admin:     slices.Contains(h.scopes, auth.ScopeAdmin),
	}, nil
}

// granted lets in everyone as one who holds scopes, within a grant.
type granted struct {
	scopes []string
	grant  *engines.Grant
}

func (g granted) Check(string, auth.Request) (engines.Actor, error) {
	return engines.Actor{CapID: "tid", Principal: "p", Scopes: g.scopes, Grant: g.grant}, nil
}

// socketPeer may do everything.
func socketPeer() *front.Peer { return userPeer(7) }

func userPeer(uid uint32) *front.Peer { return &front.Peer{Socket: true, UID: uid} }

// outcomeOf returns the outcome of the ledger.
func outcomeOf(r ledger.Op, key string) ledger.Outcome {
	id, _ := record.ParseTxID(txid)
	return ledger.Outcome{Receipt: record.Receipt{
		TxID:    id,
		Op:      r.Code,
		From:    r.From,
		To:      r.To,
		Asset:   r.Asset,
		Amount:  r.Amount,
		Nonce:   r.Nonce,
		Idem:    key,
		At:      ledgerNow,
		Hold:    r.Hold,
		Seq:     7,
		Batch:   2,
		Version: record.ReceiptVersion,
	}}
}

// receiptOf is the receipt in it, as it is sent.
func receiptOf(r ledger.Op, key string) []byte {
	out := outcomeOf(r, key)
	return out.Receipt.AppendJSON(nil)
}

func (f *fakeWallet) WriteReady() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.notReady
}

func (f *fakeWallet) Post(
	ctx context.Context,
	by engines.Actor,
	key, _ string,
	r ledger.Op,
) (wallet.Answer, error) {
	f.mu.Lock()
	f.key, f.order = key, r
	replay := f.replay
	f.mu.Unlock()
	out := outcomeOf(r, key)
	out.Replayed = replay
	return wallet.Answer{Outcome: out}, f.call(ctx, by)
}

func (f *fakeWallet) PostExisting(
	ctx context.Context, by engines.Actor, key, corrID string, r ledger.Op,
) (wallet.Answer, error) {
	f.mu.Lock()
	f.existing = true
	f.mu.Unlock()
	return f.Post(ctx, by, key, corrID, r)
}

func (f *fakeWallet) Batch(
	ctx context.Context, by engines.Actor, key, _ string, atomic bool, ops []ledger.Op,
) (wallet.Answer, error) {
	f.mu.Lock()
	f.key, f.orders, f.atomic = key, ops, atomic
	status, replay := f.status, f.replay
	f.mu.Unlock()
	out := ledger.Outcome{Batch: true, Replayed: replay, Results: []ledger.Outcome{outcomeOf(ops[0], key)}}
	if status == 207 {
		out.Results = append(out.Results, ledger.Outcome{Reject: &ledger.Reject{Code: record.InsufficientFunds}})
	}
	return wallet.Answer{Outcome: out}, f.call(ctx, by)
}

func (f *fakeWallet) SetFlags(
	ctx context.Context, by engines.Actor, key, corrID string, r ledger.Op, opens bool,
) (wallet.Answer, error) {
	f.mu.Lock()
	f.opens = opens
	f.mu.Unlock()
	return f.Post(ctx, by, key, corrID, r)
}

func (f *fakeWallet) DeclareAsset(
	ctx context.Context, by engines.Actor, key, _, asset string, decimals *int,
) (wallet.Answer, error) {
	op := ledger.Op{Code: record.OpAsset, Asset: asset}
	if decimals != nil {
		op.Code, op.Amount = record.OpScale, engines.AmountOf(0, uint64(*decimals))
	}
	return wallet.Answer{Outcome: outcomeOf(op, key)}, f.call(ctx, by)
}

func amount(s string) engines.Amount {
	a, err := engines.ParseAmount(s)
	if err != nil {
		panic(err)
	}
	return a
}

func (f *fakeWallet) Balance(
	ctx context.Context,
	by engines.Actor,
	account, asset string,
	minSeq uint64,
) (ledger.BalanceView, error) {
	f.minSeq = minSeq
	v := ledger.BalanceView{
		Account:   account,
		Asset:     asset,
		Available: amount("90"),
		Posted:    amount("100"),
		Held:      amount("10"),
		At:        ledgerNow,
		Seq:       7,
		Known:     true,
	}
	if f.issued != "" {
		v.Issued = amount(f.issued)
	}
	return v, f.call(ctx, by)
}

func (f *fakeWallet) Account(ctx context.Context, by engines.Actor, account string) (wallet.Account, error) {
	v := ledger.AccountView{
		Account:   account,
		Known:     account != "nobody",
		LastNonce: 4,
		Flags:     record.NoDebit,
		OpenedAt:  ledgerNow,
	}
	return wallet.Account{AccountView: v, NextNonce: 5}, f.call(ctx, by)
}

func (f *fakeWallet) Assets(ctx context.Context, by engines.Actor) ([]ledger.AssetView, error) {
	return []ledger.AssetView{{
		Asset: "ron", DeclaredAt: ledgerNow, Seq: 1, Issued: amount("1000"), Decimals: f.decimals,
	}}, f.call(ctx, by)
}

func (f *fakeWallet) Tx(ctx context.Context, by engines.Actor, _ record.TxID) ([]byte, error) {
	return receiptOf(
			ledger.Op{
				Code:   record.OpTransfer,
				From:   "alice",
				To:     "bob",
				Asset:  "ron",
				Amount: amount("5"),
				Nonce:  1,
			},
			"k",
		),
		f.call(ctx, by)
}

func (f *fakeWallet) History(ctx context.Context, by engines.Actor, q ledger.HistoryQuery) (ledger.Page, error) {
	f.query = q
	id, _ := record.ParseTxID(txid)
	r := record.Receipt{
		TxID:    id,
		Op:      record.OpTransfer,
		From:    q.Account,
		To:      "bob",
		Asset:   q.Asset,
		Amount:  amount("5"),
		Nonce:   1,
		At:      ledgerNow,
		Seq:     7,
		Batch:   2,
		Version: record.ReceiptVersion,
	}
	e := ledger.Entry{Receipt: r, Memo: "lunch", Debit: true, Posted: amount("95"), Available: amount("85")}
	page := ledger.Page{Entries: []ledger.Entry{e}, Next: "more"}
	if q.Cursor == "last" {
		page.Next = ""
		page.Opening = &ledger.Opening{Period: 2, At: ledgerNow, Postings: 9, Posted: amount("70"), Available: amount("60")}
	}
	return page, f.call(ctx, by)
}

func holdOf(id record.TxID) ledger.HoldView {
	return ledger.HoldView{
		TxID: id, From: "alice", To: "bob", Asset: "ron", Amount: amount("9"), At: ledgerNow, Expires: ledgerNow + 60e9,
	}
}

func (f *fakeWallet) Holds(ctx context.Context, by engines.Actor, q ledger.HoldsQuery) (ledger.HoldsPage, error) {
	f.holds = q
	id, _ := record.ParseTxID(txid)
	return ledger.HoldsPage{Holds: []ledger.HoldView{holdOf(id)}, Next: "5-9"}, f.call(ctx, by)
}

func (f *fakeWallet) Hold(ctx context.Context, by engines.Actor, id record.TxID) (ledger.HoldView, error) {
	v := holdOf(id)
	v.Closed, v.ClosedAt, v.Closing = f.closed, ledgerNow+1e9, id
	if v.Closed == record.OpCapture {
		v.Captured = amount("4")
	}
	return v, f.call(ctx, by)
}

func (f *fakeWallet) Accounts(
	ctx context.Context, by engines.Actor, q ledger.AccountsQuery,
) (ledger.AccountsPage, error) {
	f.accounts = q
	return ledger.AccountsPage{
		Accounts: []ledger.AccountEntry{{
			Account: "alice", Flags: record.NoDebit, OpenedAt: ledgerNow,
			Balance: ledger.BalanceView{Available: engines.AmountOf(0, 5), Posted: engines.AmountOf(0, 7),
				Held: engines.AmountOf(0, 2)},
		}}, Next: "alice",
	}, f.call(ctx, by)
}

func (f *fakeWallet) Reference(ctx context.Context, by engines.Actor, principal, reference string) ([]byte, error) {
	f.key = principal + " " + reference
	return receiptOf(ledger.Op{Code: record.OpTransfer, From: "alice", To: "bob", Asset: "ron", Nonce: 1}, "k"),
		f.call(ctx, by)
}

func (f *fakeWallet) Roots(ctx context.Context, by engines.Actor, since uint64, n int) ([]record.Batch, error) {
	all := make([]record.Batch, min(n, 2))
	for i := range all {
		no := max(since+1, f.first) + uint64(i)
		all[i] = record.Batch{No: no, First: no, Count: 1, At: ledgerNow}
	}
	return all, f.call(ctx, by)
}

func (f *fakeWallet) Head(ctx context.Context, by engines.Actor) (record.Head, error) {
	f.mu.Lock()
	seq := f.seq
	f.mu.Unlock()
	return record.Head{
		Batches:  seq,
		Root:     b3.Sum([]byte("log")),
		LastRoot: b3.Sum([]byte("last")),
		Seq:      seq,
	}, f.call(ctx, by)
}

func (f *fakeWallet) Proof(ctx context.Context, by engines.Actor, _ record.TxID, _ uint64) (record.Proof, error) {
	in := record.Inclusion{
		Record: []byte("r"),
		Path:   []b3.Digest{b3.Sum([]byte("x"))},
		Header: record.Batch{No: 1, First: 1, Count: 1},
	}
	return record.Proof{
		Tx:    in,
		Names: []record.Inclusion{in},
		Hold:  &in,
		Last:  in.Header,
		Head:  record.Head{Batches: 1, Seq: 1},
	}, f.call(ctx, by)
}

func (f *fakeWallet) Consistency(ctx context.Context, by engines.Actor, from, to uint64) (record.Consistency, error) {
	return record.Consistency{
		From: record.LogHead{Batches: from}, To: record.LogHead{Batches: to}, Path: []b3.Digest{b3.Sum([]byte("x"))},
	}, f.call(ctx, by)
}

func (f *fakeWallet) Horizon(context.Context) (period.Horizon, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := tables.Horizon{Period: 1, Seq: max(f.first, 1) - 1, Batch: 4, At: 1e18, Statement: b3.Sum([]byte("s"))}
	return period.Horizon{Horizon: h, DropSeq: 5, Reclaim: 4096}, f.err
}

func (f *fakeWallet) Periods(_ context.Context, after uint64, n int) ([]period.Listed, error) {
	if after == 6 { // as with six closed periods
		return nil, f.err
	}
	s := record.Statement{
		Period: after + 1, FromSeq: 1, ToSeq: 9, FromBatch: 1, ToBatch: 4, FromAt: 1e18, ToAt: 1e18,
		Peaks: []b3.Digest{b3.Sum([]byte("p"))},
	}
	return []period.Listed{{Statement: s, Row: tables.Period{Statement: s.Text(), CloseSeq: 11, ClosedAt: 1e18}}}[:min(1, n)], f.err
}

func (f *fakeWallet) Events(consumer string) *flow.Subscription[ledger.Committed] {
	return f.bus.Subscribe(consumer)
}

// commit adds a batch of one record, then tells.
func (f *fakeWallet) commit() {
	f.mu.Lock()
	f.seq++
	seq := f.seq
	f.mu.Unlock()
	f.bus.Publish(ledger.Committed{First: seq, Last: seq, Batch: seq})
}

// Payments calls fn with transfers of alice, one a record: to bob, and every third to carol.
func (f *fakeWallet) Payments(
	ctx context.Context, by engines.Actor, q ledger.PaymentFilter, from, to uint64, fn func(*ledger.Outcome) error,
) error {
	f.mu.Lock()
	f.payments = append(f.payments, q)
	broken, first := f.broken, f.first
	f.mu.Unlock()
	if err := f.call(ctx, by); err != nil {
		return err
	}
	if q.Account != "" && by.Grant.Account(q.Account) != nil {
		return by.Grant.Account(q.Account)
	}
	for n := from; n <= to; n++ {
		seq := n
		if q.Newest {
			seq = from + to - n
		}
		if seq == broken {
			return fmt.Errorf("record %d: %w", seq, ledger.ErrSafeMode)
		}
		if seq < first {
			return fmt.Errorf("record %d: %w", seq, &ledger.ClosedError{Period: 1, FirstSeq: first})
		}
		out := paymentOf(seq)
		if q.Account != "" && q.Account != out.Receipt.To || by.Grant.Account(out.Receipt.To) != nil {
			continue
		}
		if err := fn(out); err != nil {
			return err
		}
	}
	return nil
}

func paymentOf(seq uint64) *ledger.Outcome {
	r := record.Record{Op: record.OpTransfer, Seq: seq, Batch: seq, At: ledgerNow, From: 1, To: 2, Asset: 1, Nonce: seq}
	to := "bob"
	if seq%3 == 0 {
		to = "carol"
	}
	return &ledger.Outcome{Memo: "memo", Receipt: r.Receipt(record.Names{From: "alice", To: to, Asset: "ron"}, b3.Digest{})}
}

// Export calls fn with records that are batches of their own.
func (f *fakeWallet) Export(ctx context.Context, by engines.Actor, from, to uint64, fn func(record.Line) error) error {
	f.mu.Lock()
	f.exported = append(f.exported, [2]uint64{from, to})
	broken := f.broken
	f.mu.Unlock()
	if err := f.call(ctx, by); err != nil {
		return err
	}
	switch {
	case !by.Grant.IsZero():
		return wallet.ErrForbidden
	case from > to+1:
		return ledger.ErrRange
	}
	if err := fn(record.Line{Kind: record.LineFormat, From: from}); err != nil {
		return err
	}
	for seq := from; seq <= to; seq++ {
		if seq == broken {
			return fmt.Errorf("record %d: %w", seq, ledger.ErrSafeMode)
		}
		if f.reached != nil {
			f.reached(seq)
		}
		b := record.Batch{No: seq, First: seq, Count: 1, At: ledgerNow}
		for _, l := range []record.Line{recordLine(seq), {Kind: record.LineBatch, Batch: b}} {
			if err := fn(l); err != nil {
				return err
			}
		}
	}
	return nil
}

func recordLine(seq uint64) record.Line {
	r := record.Record{Op: record.OpFlags, Seq: seq, Batch: seq, At: ledgerNow, From: 1, Set: record.Frozen}
	return record.Line{Kind: record.LineRecord, Raw: r.Append(nil), Record: r, Names: record.Names{From: "alice"}}
}

// moneyRig is the server over the real wallet, on the real ledger, on a real store.
type moneyRig struct {
	*rig
	nonce map[string]uint64 // last one of each account
	keys  int
}

func newMoneyRig(t *testing.T) *moneyRig {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ronbox.db")
	id, err := store.NewIdentity(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Create(path, id); err != nil {
		t.Fatal(err)
	}
	m := obs.NewMetrics()
	cat, board := flow.NewCatalog(m, nil), obs.NewBoard(m)
	st := store.New(store.DefaultConfig(), store.Options{Path: path, Catalog: cat, Metrics: m})
	cfg := ledger.DefaultConfig()
	cfg.StallAfter = unit.Duration(2 * time.Second) // a slow disk of a busy machine is no stall
	led := ledger.New(cfg, ledger.Deps{Catalog: cat, Store: st, Metrics: m, Board: board})
	w := wallet.New(wallet.DefaultConfig(), wallet.Deps{Catalog: cat, Ledger: led, Metrics: m, Board: board})
	sup := flow.NewSupervisor(context.Background(), cat, flow.Hooks{})
	if err := errors.Join(st.Open(t.Context()), st.Prepare(t.Context())); err != nil {
		t.Fatal(err)
	}
	sup.Start(st.Tasks()...)
	if err := errors.Join(led.Recover(t.Context()), led.Declare(t.Context(), ledger.Op{Code: record.OpAsset, Asset: "ron"})); err != nil {
		t.Fatal(err)
	}
	sup.Start(led.Tasks()...)
	sup.Start(w.Tasks()...)
	t.Cleanup(func() {
		cat.CloseFedBy("wallet", flow.HTTP)
		sup.CancelBackground()
		for _, service := range []string{"wallet", "ledger"} {
			sup.Drain(service, 10*time.Second, time.Second)
		}
		w.Close()
		_ = led.Close(context.Background())
		st.CloseLanes()
		sup.Drain("store", 10*time.Second, time.Second)
		sup.Close()
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	r := newRig(t, func(_ *httpapi.Settings, d *deps) {
		d.Wallet, d.Metrics, d.Auth = withPeriods{w, &fakeWallet{}}, m, holder{[]string{auth.ScopeAdmin}}
	})
	r.metrics = m
	waitFor(t, "wallet to take writes", func() bool { return w.WriteReady() == nil })
	return &moneyRig{rig: r, nonce: map[string]uint64{}}
}

// withPeriods is a wallet with what a ledger says of closed periods.
type withPeriods struct {
	*wallet.Engine
	ledgerhttp.PeriodReader
}

// post sends a body under a key of its own, or the one given, and wants a status.
func (r *moneyRig) post(path, body, key string, status int) []byte {
	r.t.Helper()
	if key == "" {
		r.keys++
		key = fmt.Sprint("key-", r.keys)
	}
	w := r.do("POST", "/v1/"+path, body, header{"Authorization": "Bearer x", "Idempotency-Key": key})
	if w.Code != status {
		r.t.Fatalf("POST %s %s: %d %s, want %d", path, body, w.Code, w.Body, status)
	}
	return w.Body.Bytes()
}

func (r *moneyRig) next(account string) uint64 { r.nonce[account]++; return r.nonce[account] }

func (r *moneyRig) pay(from, to, n string) string {
	return fmt.Sprintf(`{"from":%q,"to":%q,"asset":"ron","amount_minor":%q,"nonce":%d}`, from, to, n, r.next(from))
}

func (r *moneyRig) has(account, want string) {
	r.t.Helper()
	if b := read[walletapi.Balance](r.t.(*testing.T), r.rig,
		"/v1/balance?account="+account+"&asset=ron&min_seq="+formatUint(r.head().Seq)); b.AmountMinor != want {
		r.t.Errorf("%s has %+v, want %s", account, b, want)
	}
}

func (r *moneyRig) head() ledgerapi.LedgerHead {
	return read[ledgerapi.LedgerHead](r.t.(*testing.T), r.rig, "/v1/ledger/head")
}

func receiptIn(t *testing.T, raw []byte) (out walletapi.Receipt) {
	t.Helper()
	if err := json.Unmarshal(raw, &out, json.RejectUnknownMembers(true)); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return out
}

func TestMoneyOverTheEngine(t *testing.T) {
	r := newMoneyRig(t)
	r.post("issue", `{"to":"alice","asset":"ron","amount_minor":"1000","nonce":1}`, "", 200)
	body := r.pay("alice", "bob", "300")
	first := r.post("transfer", body, "again", 200)
	w := r.do(
		"POST",
		"/v1/transfer",
		strings.Replace(body, ",", " , ", 1),
		header{"Authorization": "Bearer x", "Idempotency-Key": `"again"`},
	)
	if w.Code != 200 || !bytes.Equal(w.Body.Bytes(), first) || w.Header().Get(httpapi.ReplayedHeader) != "true" {
		t.Errorf("again: %d %s %v, want %s", w.Code, w.Body, w.Header(), first)
	}
	if got := r.do("GET", "/v1/tx/"+receiptIn(t, first).TxID, "", writer).Body.Bytes(); !bytes.Equal(got, first) {
		t.Errorf("tx: %s, want %s", got, first)
	}
	r.has("alice", "700")
	r.refusals(t, body)
	r.post("burn", fmt.Sprintf(`{"from":"bob","asset":"ron","amount_minor":"50","nonce":%d}`, r.next("bob")), "", 200)
	r.has("bob", "250")
	assigned := receiptIn(t, r.post("issue", `{"to":"dave","asset":"ron","amount_minor":"1"}`, "", 200))
	if assigned.Nonce != 2 {
		t.Errorf("%+v, want the nonce 2", assigned)
	}
	r.holds(t)
	r.batches(t)
	r.statement(t)
	r.proven(t, receiptIn(t, first))
	r.locked(t)
}

// refusals checks the answers to a repeated body with other keys.
func (r *moneyRig) refusals(t *testing.T, body string) {
	t.Helper()
	want := func(path, body, key string, status int, reason string, d httpapi.Details) {
		t.Helper()
		p := problemIn(t, string(r.post(path, body, key, status)))
		for k, v := range d {
			if p.Details[k] != v {
				t.Errorf("%s %s: httpapi.Details %v, want %s = %v", path, body, p.Details, k, v)
			}
		}
		if p.Reason != reason {
			t.Errorf("%s %s: %+v, want %s", path, body, p, reason)
		}
	}
	want("transfer", strings.Replace(body, "300", "301", 1), "again", 422, "idem_conflict", nil)
	want("transfer", body, "", 409, "nonce_reused", httpapi.Details{"expected_nonce": 2.0, "field": "nonce"})
	want(
		"transfer",
		strings.Replace(body, `"nonce":1`, `"nonce":9`, 1),
		"",
		409,
		"nonce_gap",
		httpapi.Details{"expected_nonce": 2.0},
	)
	want(
		"transfer",
		`{"from":"alice","to":"bob","asset":"ron","amount_minor":"701","nonce":2}`,
		"",
		409,
		"insufficient_funds",
		httpapi.Details{"asset": "ron"},
	)
	want(
		"transfer",
		`{"from":"alice","to":"bob","asset":"eur","amount_minor":"1","nonce":2}`,
		"",
		400,
		"asset_unknown",
		httpapi.Details{"field": "asset"},
	)
	want(
		"transfer",
		`{"from":"alice","to":"bob","asset":"ron","amount_minor":"1","nonce":2,"valid_until":"2020-01-01T00:00:00Z"}`,
		"",
		400,
		"expired",
		httpapi.Details{"field": "valid_until"},
	)
	want(
		"transfer",
		`{"from":"alice","to":"sys:issue:ron","asset":"ron","amount_minor":"1","nonce":2}`,
		"",
		403,
		"forbidden",
		nil,
	)
	want(
		"transfer",
		`{"from":"alice","to":"bob","asset":"ron","amount_minor":"100000000000000000001","nonce":2}`,
		"",
		403,
		"limit_op",
		nil,
	)
	want("release", `{"hold":"`+txid+`"}`, "", 404, "hold_unknown", nil)
	if w := r.do("GET", "/v1/tx/"+txid, "", writer); w.Code != 404 {
		t.Errorf("a txid that was not given: %d", w.Code)
	}
}

func (r *moneyRig) holds(t *testing.T) {
	t.Helper()
	hold := func() string {
		body := fmt.Sprintf(
			`{"from":"alice","to":"shop","asset":"ron","amount_minor":"100","nonce":%d,"expires_in_s":60}`,
			r.next("alice"),
		)
		return receiptIn(t, r.post("hold", body, "", 200)).TxID
	}
	id := hold()
	r.has("alice", "600")
	if c := receiptIn(
		t,
		r.post("capture", `{"hold":"`+id+`","amount_minor":"30"}`, "", 200),
	); c.Hold != id ||
		c.AmountMinor != "30" {
		t.Errorf("captured %+v", c)
	}
	r.has("alice", "670")
	r.has("shop", "30")
	if p := problemIn(t, string(r.post("release", `{"hold":"`+id+`"}`, "", 409))); p.Reason != "hold_closed" {
		t.Errorf("%+v", p)
	}
	r.post("release", `{"hold":"`+hold()+`"}`, "", 200)
	r.has("alice", "670")
}

func (r *moneyRig) batches(t *testing.T) {
	t.Helper()
	op := func(body string) string { return `{"op":"transfer",` + body[1:] }
	many := `{"mode":"independent","ops":[` + op(r.pay("alice", "bob", "70")) + `,` +
		`{"op":"burn","from":"bob","asset":"ron","amount_minor":"9999","nonce":2},` + op(r.pay("alice", "carol", "100")) + `]}`
	first := r.post("batch", many, "many", 207)
	w := r.do("POST", "/v1/batch", toCBOR(t, many),
		header{"Authorization": "Bearer x", "Idempotency-Key": "many", "Content-Type": httpapi.TypeCBOR})
	if w.Code != 207 || !bytes.Equal(w.Body.Bytes(), first) || w.Header().Get(httpapi.ReplayedHeader) != "true" {
		t.Errorf("again, as CBOR: %d %s, want %s", w.Code, w.Body, first)
	}
	var a walletapi.BatchAnswer
	if err := json.Unmarshal(first, &a, json.RejectUnknownMembers(true)); err != nil || len(a.Results) != 3 {
		t.Fatalf("%v %s", err, first)
	}
	if e := a.Results[1].Error; e == nil || e.Code != "INSUFFICIENT_FUNDS" ||
		receiptIn(t, a.Results[2].Receipt).To != "carol" {
		t.Errorf("%s", first)
	}
	atomic := `{"mode":"atomic","ops":[` + op(
		r.pay("alice", "bob", "1"),
	) + `,{"op":"burn","from":"bob","asset":"ron","amount_minor":"9999","nonce":2}]}`
	if p := problemIn(
		t,
		string(r.post("batch", atomic, "", 409)),
	); p.Reason != "insufficient_funds" || p.Details["index"] != 1.0 ||
		p.Details["asset"] != "ron" {
		t.Errorf("%+v", p)
	}
	r.nonce["alice"]-- // it had no effect
	r.has("alice", "500")
	r.has("carol", "100")
	r.recordsOfBatches(t)
}

// recordsOfBatches looks for every record of the ledger: the one of a whole batch has no receipt of
// its own, and is not found.
func (r *moneyRig) recordsOfBatches(t *testing.T) {
	t.Helper()
	whole := 0
	for line := range strings.Lines(r.do("GET", "/v1/ledger/export", "", writer).Body.String()) {
		var rec struct{ TxID, Op string }
		if err := json.Unmarshal([]byte(line), &rec, json.MatchCaseInsensitiveNames(true)); err != nil ||
			rec.TxID == "" {
			continue
		}
		want := 200
		if rec.Op == "batch" {
			want, whole = 404, whole+1
		}
		for _, path := range []string{"/v1/tx/", "/v1/proof/"} {
			if w := r.do("GET", path+rec.TxID, "", writer); path == "/v1/tx/" && w.Code != want || w.Code >= 500 {
				t.Errorf("%s of a %s: %d %s, want %d", path, rec.Op, w.Code, w.Body, want)
			}
		}
	}
	if whole == 0 {
		t.Error("the export has no record of a whole batch")
	}
}

// statement follows alice's pages to the end, in both orders.
func (r *moneyRig) statement(t *testing.T) {
	t.Helper()
	var down, up []string
	for _, order := range []string{"desc", "asc"} {
		seen := &down
		if order == "asc" {
			seen = &up
		}
		for cursor := ""; ; {
			target := "/v1/history?account=alice&asset=ron&limit=2&order=" + order
			if cursor != "" {
				target += "&cursor=" + cursor
			}
			page := read[walletapi.History](t, r.rig, target)
			for _, e := range page.Entries {
				*seen = append(*seen, receiptIn(t, e.Receipt).TxID)
			}
			if cursor = page.Next; cursor == "" {
				break
			}
		}
	}
	if len(up) != len(down) || len(up) < 6 {
		t.Fatalf("%d entries up, %d down", len(up), len(down))
	}
	for i := range up {
		if up[i] != down[len(down)-1-i] {
			t.Errorf("up %q, down %q", up, down)
			break
		}
	}
}

// proven checks the ledger's proofs for a receipt, its consistency and its checkpoint.
func (r *moneyRig) proven(t *testing.T, receipt walletapi.Receipt) {
	t.Helper()
	var proof record.Proof
	if err := json.Unmarshal(
		r.do("GET", "/v1/tx/"+receipt.TxID+"/proof", "", writer).Body.Bytes(),
		&proof,
	); err != nil {
		t.Fatal(err)
	}
	got, err := proof.Verify()
	if err != nil || got.TxID.String() != receipt.TxID || got.From != "alice" ||
		got.Amount.String() != receipt.AmountMinor {
		t.Errorf("proves %+v, %v, want %+v", got, err, receipt)
	}
	head := r.head()
	if proof.Head.Root.String() != head.LogRoot {
		t.Errorf("proven to %s, the head is %s", proof.Head.Root, head.LogRoot)
	}
	var grew record.Consistency
	target := fmt.Sprintf("/v1/ledger/consistency?from=1&to=%d", head.Batches)
	if err := json.Unmarshal(r.do("GET", target, "", writer).Body.Bytes(), &grew); err != nil || grew.Verify() != nil {
		t.Errorf("%v, %v", err, grew.Verify())
	}
	if l := read[ledgerapi.Roots](t, r.rig, "/v1/ledger/roots"); len(l.Roots) != int(head.Batches) ||
		l.Roots[len(l.Roots)-1].Root != head.LastRoot {
		t.Errorf("%+v, head %+v", l, head)
	}
	seq := uint64(0)
	for line := range bytes.Lines(r.do("GET", "/v1/ledger/export", "", writer).Body.Bytes()) {
		l, err := record.ParseLine(line)
		if err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if l.Kind == record.LineRecord {
			if seq++; l.Record.Seq != seq {
				t.Fatalf("record %d, want %d", l.Record.Seq, seq)
			}
		}
	}
	if seq != head.Seq {
		t.Errorf("%d records, the head is at %d", seq, head.Seq)
	}
}

func (r *moneyRig) locked(t *testing.T) {
	t.Helper()
	if f := receiptIn(t, r.post("accounts/flags", `{"account":"bob","set":["frozen"]}`, "", 200)); f.Op != "flags" {
		t.Errorf("%+v", f)
	}
	body := r.pay("alice", "bob", "1")
	if p := problemIn(t, string(r.post("transfer", body, "", 409))); p.Reason != "account_locked" {
		t.Errorf("%+v", p)
	}
	if a := read[walletapi.Account](t, r.rig, "/v1/account?account=bob"); len(a.Flags) != 1 || a.Flags[0] != "frozen" ||
		a.NextNonce != 2 {
		t.Errorf("%+v", a)
	}
	r.post("accounts/flags", `{"account":"bob","clear":["frozen"]}`, "", 200)
	r.post("transfer", body, "", 200)
	r.post("assets", `{"asset":"eur"}`, "", 200)
	if l := read[walletapi.AssetList](t, r.rig, "/v1/assets"); len(l.Assets) != 2 || l.Assets[1].Asset != "eur" {
		t.Errorf("%+v", l)
	}
	if p := problemIn(
		t,
		r.do("GET", "/v1/history?account=bob&asset=ron&cursor=zzz", "", writer).Body.String(),
	); p.Details["field"] != "cursor" {
		t.Errorf("%+v", p)
	}
}
