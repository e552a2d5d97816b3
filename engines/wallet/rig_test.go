package wallet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	dto "github.com/prometheus/client_model/go"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/record"
)

// rig is a wallet on a model of the ledger, behind a wire that a test can spoil, under a supervisor.
type rig struct {
	t       testing.TB
	cfg     Config
	metrics *obs.Metrics
	board   *obs.Board
	catalog *flow.Catalog
	model   *ledgertest.Model
	client  ledger.Client
	log     hclog.Logger
	sup     *flow.Supervisor
	e       *Engine
	stall   time.Duration // of the ledger's calls; long, so that a busy machine is not taken for a stalled ledger
	skew    atomic.Int64  // added to the wall clock, ns
	now     func() time.Time
	without string // task that is not started
	hasty   bool   // is not waited for at its start
	issued  uint64 // last nonce of ron's issuance account
	stopped bool
}

type option func(*rig)

// with changes the configuration.
func with(change func(*Config)) option { return func(r *rig) { change(&r.cfg) } }

// quick has the ledger's calls count as stalled as soon as by default.
func quick(r *rig) { r.stall = ledger.DefaultConfig().StallAfter.D() }

// over puts a client of the test's between wallet and model.
func over(wrap func(ledger.Client) ledger.Client) option {
	return func(r *rig) { r.client = wrap(r.client) }
}

// on puts the wallet on a model that was there before.
func on(m *ledgertest.Model) option { return func(r *rig) { r.model, r.client = m, m } }

// by has the node see another wall clock.
func by(now func() time.Time) option { return func(r *rig) { r.now = now } }

// newRig wires all and starts nothing.
func newRig(t testing.TB, opts ...option) *rig {
	t.Helper()
	r := &rig{t: t, cfg: DefaultConfig(), metrics: obs.NewMetrics(), stall: time.Minute}
	r.cfg.Workers, r.cfg.BalanceCacheBytes = 2, 1<<20
	r.model = ledgertest.NewModel(nil)
	if err := r.model.Declare(context.Background(), "ron", "eur"); err != nil {
		t.Fatal(err)
	}
	r.client = r.model
	r.now = func() time.Time { return time.Now().Add(time.Duration(r.skew.Load())) }
	for _, o := range opts {
		o(r)
	}
	if err := r.cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	r.board = obs.NewBoard(r.metrics)
	r.catalog = flow.NewCatalog(r.metrics, r.log)
	r.e = New(r.cfg, Deps{
		Catalog: r.catalog, Ledger: r.client, Metrics: r.metrics, Board: r.board, Log: r.log,
		StallAfter: func() time.Duration { return r.stall }, Now: r.now,
	})
	r.e.receipts.kept.Spec.Bytes = 1 << 18 // caches as large as a node's take longer to make than most tests
	if err := r.e.Open(); err != nil {
		t.Fatal(err)
	}
	r.sup = flow.NewSupervisor(context.Background(), r.catalog, flow.Hooks{})
	t.Cleanup(r.stop)
	return r
}

// start runs every task but without, and waits until writes are taken.
func (r *rig) start() *rig {
	r.t.Helper()
	for _, task := range r.e.Tasks() {
		if task.Name != r.without {
			r.sup.Start(task)
		}
	}
	if !r.hasty {
		r.await("ready", func() bool { return r.e.WriteReady() == nil })
	}
	return r
}

// startBut runs every task but one.
func (r *rig) startBut(name string) *rig {
	r.without = name
	return r.start()
}

// await polls until a condition holds; it gives up after a minute.
func (r *rig) await(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("%s does not come", what)
		}
	}
}

// stop is an orderly shutdown. It may be called again.
func (r *rig) stop() {
	if r.stopped {
		return
	}
	r.stopped = true
	r.catalog.CloseFedBy(service, flow.HTTP)
	r.sup.CancelBackground()
	r.sup.Drain(service, r.e.live().DrainDeadline.D(), time.Second)
	r.sup.Close()
	_ = r.e.work.Discard("test")
	r.e.Close()
	_ = r.client.Close(context.Background())
}

// die is the end of a process that was not asked to stop: nothing is drained, and what is answered reaches nobody.
func (r *rig) die() {
	r.stopped = true
	r.sup.Close()
	_ = r.e.work.Discard("test")
	r.e.Close()
}

// alice may do everything.
var alice = engines.Actor{CapID: "cap-alice", Principal: "alice", Admin: true}

func amountOf(n uint64) engines.Amount { return engines.AmountOf(0, n) }

func transfer(from, to string, n, nonce uint64) Request {
	return Request{Op: record.OpTransfer, From: from, To: to, Asset: "ron", Amount: amountOf(n), Nonce: nonce}
}

func issue(to string, n, nonce uint64) Request {
	return Request{Op: record.OpIssue, To: to, Asset: "ron", Amount: amountOf(n), Nonce: nonce}
}

func (r *rig) post(key string, q Request) (Answer, error) {
	return r.e.Post(context.Background(), alice, key, "corr-"+key, q)
}

// bytes is all that a says, as JSON: of a batch each receipt or the reason of a refusal, of no answer nothing.
func (a Answer) bytes() (b []byte) {
	switch {
	case !a.Batch && a.Receipt.Version == 0:
		return nil
	case !a.Batch:
		return a.Receipt.AppendJSON(nil)
	}
	b = append(b, `{"results":[`...)
	for i := range a.Results {
		if one := &a.Results[i]; one.Reject != nil {
			b = fmt.Appendf(b, `{"reason":%q},`, rejectCode(one.Reject.Code).Reason)
		} else {
			b = append(one.Receipt.AppendJSON(append(b, `{"receipt":`...)), "},"...)
		}
	}
	return append(b[:len(b)-1], `]}`...)
}

// whole reports whether no op of a was refused.
func (a Answer) whole() bool {
	for i := range a.Results {
		if a.Results[i].Reject != nil {
			return false
		}
	}
	return true
}

// must is post that has to succeed.
func (r *rig) must(key string, q Request) receiptJSON {
	r.t.Helper()
	a, err := r.post(key, q)
	if err != nil {
		r.t.Fatalf("%s %s: %v", q.Op, key, err)
	}
	return parse(r.t, a.bytes())
}

// fund gives an account money, past the wallet.
func (r *rig) fund(account string, n uint64) {
	r.t.Helper()
	r.issued++
	outs, err := r.model.Commit(context.Background(), []ledger.Op{{
		Code: record.OpIssue, To: account, Asset: "ron", Amount: amountOf(n), Nonce: r.issued, Principal: "test",
	}})
	if err != nil || outs[0].Reject != nil {
		r.t.Fatalf("fund %s: %+v, %v", account, outs, err)
	}
}

// available is what the ledger says that an account may spend.
func (r *rig) available(account string) string {
	r.t.Helper()
	v, err := r.model.Balance(context.Background(), account, "ron", 0)
	if err != nil {
		r.t.Fatal(err)
	}
	return v.Available.String()
}

// receiptJSON is a receipt as a client reads it.
type receiptJSON struct {
	TxID   string `json:"txid"`
	Op     string `json:"op"`
	From   string `json:"from"`
	To     string `json:"to"`
	Amount string `json:"amount_minor"`
	Nonce  uint64 `json:"nonce"`
	Idem   string `json:"idem"`
	Ledger struct {
		Seq uint64 `json:"seq"`
	} `json:"ledger"`
}

func (j receiptJSON) id(t testing.TB) record.TxID {
	t.Helper()
	id, err := record.ParseTxID(j.TxID)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func parse(t testing.TB, body []byte) (out receiptJSON) {
	t.Helper()
	if err := json.Unmarshal(body, &out); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return out
}

// code is what an error is called on the wire; "" for none.
func code(err error) string {
	if err == nil {
		return ""
	}
	return CodeOf(err).Name
}

// sum adds up the series of a family that have the labels.
func (r *rig) sum(family string, labels ...string) (total float64) {
	r.t.Helper()
	all, err := r.metrics.Registry().Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	known := false
	for _, f := range all {
		if f.GetName() != family {
			continue
		}
		for _, m := range f.GetMetric() {
			if hasLabels(m, labels) {
				known = true
				total += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	if !known {
		r.t.Fatalf("no series %s%v", family, labels)
	}
	return total
}

func hasLabels(m *dto.Metric, pairs []string) bool {
	has := map[string]string{}
	for _, l := range m.GetLabel() {
		has[l.GetName()] = l.GetValue()
	}
	for i := 0; i < len(pairs); i += 2 {
		if has[pairs[i]] != pairs[i+1] {
			return false
		}
	}
	return true
}

// want fails unless a series has a value.
func (r *rig) want(value float64, family string, labels ...string) {
	r.t.Helper()
	if got := r.sum(family, labels...); got != value {
		r.t.Errorf("%s{%s} = %v, want %v", family, strings.Join(labels, ","), got, value)
	}
}

// failing are the readiness keys that fail.
func (r *rig) failing() (keys []string) {
	for _, key := range []string{keyConfig, keyLedger, keyAuth, keyPolicy, keyQueue, keyClock, keyBreaker} {
		if r.sum("readyz_degraded", "service", service, "cause", key) != 0 {
			keys = append(keys, key)
		}
	}
	return keys
}

// hooked is a client of which a test replaces calls.
type hooked struct {
	ledger.Client
	commit func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error)
	probe  func(ctx context.Context, next ledger.Client) error
}

func (h *hooked) Commit(ctx context.Context, ops []ledger.Op) ([]ledger.Outcome, error) {
	if h.commit != nil {
		return h.commit(ctx, h.Client, ops)
	}
	return h.Client.Commit(ctx, ops)
}

func (h *hooked) Probe(ctx context.Context) error {
	if h.probe != nil {
		return h.probe(ctx, h.Client)
	}
	return h.Client.Probe(ctx)
}

// commits wraps Commit.
func commits(fn func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error)) option {
	return over(func(c ledger.Client) ledger.Client { return &hooked{Client: c, commit: fn} })
}

var errTest = errors.New("made to fail")

func unavailable(unknown bool) error {
	return &ledger.UnavailableError{Unknown: unknown, Cause: errTest}
}

func name(i int) string { return fmt.Sprintf("acct-%d", i) }
