package wallet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	dto "github.com/prometheus/client_model/go"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/unit"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
)

// rig is a wallet on a model of the ledger, under a supervisor. A test can put a fault-injecting
// client between the wallet and the model.
type rig struct {
	t       testing.TB
	cfg     wallet.Config
	metrics *obs.Metrics
	board   *obs.Board
	catalog *flow.Catalog
	model   *ledgertest.Model
	client  ledger.Client
	log     hclog.Logger
	sup     *flow.Supervisor
	e       *wallet.Engine
	stall   time.Duration // stall threshold of ledger calls; long, so that a busy machine does not look like a stalled ledger
	now     func() time.Time
	without string // name of a task that start leaves out
	hasty   bool   // start does not wait until the wallet is ready
	issued  uint64 // last nonce of ron's issuance account
	stopped bool
}

type option func(*rig)

// with changes the configuration.
func with(change func(*wallet.Config)) option { return func(r *rig) { change(&r.cfg) } }

// quick sets the stall threshold of ledger calls to the default.
func quick(r *rig) { r.stall = ledger.DefaultConfig().StallAfter.D() }

// over wraps the ledger client of the wallet.
func over(wrap func(ledger.Client) ledger.Client) option {
	return func(r *rig) { r.client = wrap(r.client) }
}

// on uses an existing model.
func on(m *ledgertest.Model) option { return func(r *rig) { r.model, r.client = m, m } }

// by replaces the clock.
func by(now func() time.Time) option { return func(r *rig) { r.now = now } }

// newRig builds a rig without starting its tasks.
func newRig(t testing.TB, opts ...option) *rig {
	t.Helper()
	r := &rig{t: t, cfg: wallet.DefaultConfig(), metrics: obs.NewMetrics(), stall: time.Minute}
	r.cfg.Workers = 2
	r.model = ledgertest.NewModel(nil)
	if err := r.model.Declare(context.Background(), "ron", "eur"); err != nil {
		t.Fatal(err)
	}
	r.client = r.model
	r.now = time.Now
	for _, o := range opts {
		o(r)
	}
	if err := r.cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	r.board = obs.NewBoard(r.metrics)
	r.catalog = flow.NewCatalog(r.metrics, r.log)
	r.e = wallet.New(r.cfg, wallet.Deps{
		Catalog: r.catalog, Ledger: r.client, Metrics: r.metrics, Board: r.board, Log: r.log,
		StallAfter: func() time.Duration { return r.stall }, Now: r.now,
	})
	r.e.Progress().Note(0) // the disk is known to be fast
	r.sup = flow.NewSupervisor(context.Background(), r.catalog, flow.Hooks{})
	t.Cleanup(r.stop)
	return r
}

// start runs every task except r.without, and waits until writes are accepted.
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

// startBut runs every task except the named one.
func (r *rig) startBut(name string) *rig {
	r.without = name
	return r.start()
}

// await polls until ok returns true. It fails the test after a minute.
func (r *rig) await(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("%s does not come", what)
		}
	}
}

// stop shuts the rig down in order. It is idempotent.
func (r *rig) stop() {
	if r.stopped {
		return
	}
	r.stopped = true
	r.catalog.CloseFedBy(wallet.Service, flow.HTTP)
	r.sup.CancelBackground()
	r.sup.Drain(wallet.Service, r.cfg.DrainDeadline.D(), time.Second)
	r.sup.Close()
	_ = r.e.Work().Discard("test")
	r.e.Close()
	_ = r.client.Close(context.Background())
}

// die simulates a crash: nothing is drained, and answers are lost.
func (r *rig) die() {
	r.stopped = true
	r.sup.Close()
	_ = r.e.Work().Discard("test")
	r.e.Close()
}

// alice is an admin.
var alice = engines.Actor{CapID: "cap-alice", Principal: "alice", Admin: true}

func amountOf(n uint64) engines.Amount { return engines.AmountOf(0, n) }

func transfer(from, to string, n, nonce uint64) ledger.Op {
	return ledger.Op{Code: record.OpTransfer, From: from, To: to, Asset: "ron", Amount: amountOf(n), Nonce: nonce}
}

func issue(to string, n, nonce uint64) ledger.Op {
	return ledger.Op{Code: record.OpIssue, To: to, Asset: "ron", Amount: amountOf(n), Nonce: nonce}
}

func (r *rig) post(key string, q ledger.Op) (wallet.Answer, error) {
	return r.e.Post(context.Background(), alice, key, "corr-"+key, q)
}

// bytes returns the answer as JSON. A batch has the receipt or the reason of each op. An empty
// answer returns nil.
func bytesOf(a wallet.Answer) (b []byte) {
	switch {
	case !a.Batch && a.Receipt.Version == 0:
		return nil
	case !a.Batch:
		return a.Receipt.AppendJSON(nil)
	}
	b = append(b, `{"results":[`...)
	for i := range a.Results {
		if one := &a.Results[i]; one.Reject != nil {
			b = fmt.Appendf(b, `{"reason":%q},`, one.Reject.Code.String())
		} else {
			b = append(one.Receipt.AppendJSON(append(b, `{"receipt":`...)), "},"...)
		}
	}
	return append(b[:len(b)-1], `]}`...)
}

// whole reports whether no op of a was refused.
func wholeOf(a wallet.Answer) bool {
	for i := range a.Results {
		if a.Results[i].Reject != nil {
			return false
		}
	}
	return true
}

// must calls post and fails the test on an error.
func (r *rig) must(key string, q ledger.Op) receiptJSON {
	r.t.Helper()
	a, err := r.post(key, q)
	if err != nil {
		r.t.Fatalf("%s %s: %v", q.Code, key, err)
	}
	return parse(r.t, bytesOf(a))
}

// fund issues n to an account, bypassing the wallet.
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

// available returns the available balance of an account in the ledger.
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

// reasonOf returns the reason of an error in the HTTP API, or "" for nil.
func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	return rowOf(err).Reason
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

// want fails the test unless sum returns value.
func (r *rig) want(value float64, family string, labels ...string) {
	r.t.Helper()
	if got := r.sum(family, labels...); got != value {
		r.t.Errorf("%s{%s} = %v, want %v", family, strings.Join(labels, ","), got, value)
	}
}

// failing returns the readiness keys that fail, in a bubble, after the watchdog has set the keys of
// this instant.
func (r *rig) failing() (keys []string) {
	synctest.Wait()
	for _, key := range []string{wallet.KeyConfig, wallet.KeyLedger, wallet.KeyAuth, wallet.KeyQueue, wallet.KeyBreaker} {
		if r.sum("readyz_degraded", "service", wallet.Service, "cause", key) != 0 {
			keys = append(keys, key)
		}
	}
	return keys
}

// hooked is a client on which a test replaces Commit or Probe.
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

// Submit runs h.commit on the prepared ops when Wait is called.
func (h *hooked) Submit(ctx context.Context, ops []*ledger.Prepared) (ledger.Pending, error) {
	if h.commit == nil {
		return h.Client.Submit(ctx, ops)
	}
	return pendingFunc(func(ctx context.Context) ([]ledger.Outcome, error) {
		return h.commit(ctx, h.Client, opsOf(ops))
	}), nil
}

// pendingFunc is a command with an outcome computed by a function.
type pendingFunc func(ctx context.Context) ([]ledger.Outcome, error)

func (f pendingFunc) Wait(ctx context.Context) ([]ledger.Outcome, error) { return f(ctx) }

// opsOf returns the ops that were prepared.
func opsOf(prepared []*ledger.Prepared) []ledger.Op {
	ops := make([]ledger.Op, len(prepared))
	for i, p := range prepared {
		ops[i] = *p.Op
	}
	return ops
}

func (h *hooked) Probe(ctx context.Context) error {
	if h.probe != nil {
		return h.probe(ctx, h.Client)
	}
	return h.Client.Probe(ctx)
}

// commits replaces Commit.
func commits(fn func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error)) option {
	return over(func(c ledger.Client) ledger.Client { return &hooked{Client: c, commit: fn} })
}

var errTest = errors.New("made to fail")

func unavailable(unknown bool) error {
	return &ledger.UnavailableError{Unknown: unknown, Cause: errTest}
}

func name(i int) string { return fmt.Sprintf("acct-%d", i) }

func seconds(n int) unit.Duration { return unit.Duration(time.Duration(n) * time.Second) }

func isA[E error](err error) bool {
	_, is := errors.AsType[E](err)
	return is
}
