package lverify_test

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/host/hosttest"
	"ronbox/appliance/obs"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
	"ronbox/store/storetest"
)

// file is a store in a temporary file with a running committer.
type file struct {
	t     testing.TB
	path  string
	clock *ledgertest.Clock
	s     *store.Store
	l     *ledger.Local // nil: the file has no ledger that runs
	dice  *ledgertest.Dice
	stop  context.CancelFunc
	wg    sync.WaitGroup
	tick  atomic.Pointer[func()] // unless nil, called whenever the store asks for the time, as for each group
}

func (f *file) now() time.Time {
	if tick := f.tick.Load(); tick != nil {
		(*tick)()
	}
	return f.clock.Now()
}

// killed returns a context that is canceled at the n-th group from now on, and a function that ends
// the counting.
func (f *file) killed(n int) (ctx context.Context, done func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	tick := func() {
		if n--; n <= 0 {
			cancel()
		}
	}
	f.tick.Store(&tick)
	return ctx, func() { f.tick.Store(nil); cancel() }
}

// newFile creates a file without a running ledger. Call open with live set to start one.
func newFile(t testing.TB) *file {
	t.Helper()
	f := &file{t: t, path: filepath.Join(t.TempDir(), "ronbox.db"), clock: ledgertest.NewClock()}
	id, err := store.NewIdentity(f.clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Create(f.path, id); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.close)
	return f
}

// open opens the file, with a running ledger if live is set.
func (f *file) open(live bool) *file {
	f.t.Helper()
	catalog := flow.NewCatalog(nil, nil)
	f.s = store.New(store.DefaultConfig(), store.Options{Path: f.path, Catalog: catalog, Now: f.now})
	if live {
		metrics := obs.NewMetrics()
		f.l = ledger.New(ledger.DefaultConfig(), ledger.Deps{
			Catalog: catalog, Store: f.s, Metrics: metrics, Board: obs.NewBoard(metrics), Now: f.clock.Now,
		})
	} else {
		f.s.Declare("ledger", tables.Buckets()...)
	}
	ctx, cancel := context.WithCancel(f.t.Context())
	f.stop = cancel
	if err := errors.Join(f.s.Open(ctx), f.s.Prepare(ctx)); err != nil {
		f.t.Fatal(err)
	}
	f.wg.Go(func() { _ = f.s.Tasks()[0].Run(ctx) })
	if live {
		if err := f.l.Recover(ctx); err != nil {
			f.t.Fatal(err)
		}
	}
	return f
}

// close closes the file without a flush.
func (f *file) close() {
	if f.s == nil {
		return
	}
	if f.l != nil {
		if err := f.l.Close(context.Background()); err != nil {
			f.t.Error(err)
		}
	}
	f.s.CloseLanes()
	f.wg.Wait()
	if err := f.s.Close(); err != nil {
		f.t.Error(err)
	}
	f.stop()
	f.s, f.l = nil, nil
}

// fill makes n calls derived from seed, and one settlement.
func (f *file) fill(seed uint64, n int) {
	f.t.Helper()
	f.do(ledger.Op{Code: record.OpAsset, Asset: "ron"})
	f.dice = ledgertest.NewDice(seed)
	f.calls(n)
	once := ledger.Once{
		Domain: "payout",
		ID:     "epoch 1",
		Digest: b3.Sum([]byte("epoch 1")),
		Guard:  ledger.Guard{Key: "tenant", Owner: "run"},
	}
	out, err := f.l.Settle(f.t.Context(), once, []ledger.Op{
		{Code: record.OpIssue, To: "pool", Asset: "ron", Amount: engines.AmountOf(0, 70)},
		{Code: record.OpTransfer, From: "pool", To: "winner", Asset: "ron", Amount: engines.AmountOf(0, 30)},
	})
	if err != nil || out.Reject != nil {
		f.t.Fatalf("settle: %v, %v", out.Reject, err)
	}
}

// calls makes n more calls.
func (f *file) calls(n int) {
	f.t.Helper()
	for range n {
		ops := f.dice.Call()
		for i, out := range f.do(ops...) {
			f.dice.Note(ops[i], out)
		}
	}
}

func (f *file) do(ops ...ledger.Op) []ledger.Outcome {
	f.t.Helper()
	f.clock.Advance(time.Second)
	outs, err := f.l.Commit(f.t.Context(), ops)
	if err != nil {
		f.t.Fatal(err)
	}
	return outs
}

func (f *file) flush() {
	f.t.Helper()
	if err := f.l.Flush(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}

// export returns the text of the whole ledger.
func (f *file) export() []byte {
	f.t.Helper()
	var text bytes.Buffer
	err := f.l.Export(f.t.Context(), 0, 0, func(l record.Line) error {
		text.Write(l.Append(nil))
		return nil
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return text.Bytes()
}

// view reads the file.
func (f *file) view(fn func(r store.Reader)) {
	f.t.Helper()
	if err := f.s.View(f.t.Context(), func(r store.Reader) error { fn(r); return nil }); err != nil {
		f.t.Fatal(err)
	}
}

func (f *file) verify(o lverify.Options) (rep lverify.Report) {
	f.t.Helper()
	f.view(func(r store.Reader) {
		var err error
		if rep, err = lverify.Verify(f.t.Context(), r, o); err != nil {
			f.t.Fatal(err)
		}
	})
	return rep
}

type row struct {
	b          *store.Bucket
	key, value []byte
}

// rows returns all rows of the ledger except those of sealed runs, in the order of the file.
func rows(r store.Reader) (all []row) {
	for _, b := range tables.Buckets() {
		if b.Subs {
			continue
		}
		for k, v := range r.Range(b, nil, nil) {
			all = append(all, row{b, bytes.Clone(k), bytes.Clone(v)})
		}
	}
	return all
}

// put is a command that writes rows. A row with a nil value is deleted.
type put []row

func (put) Kind() string { return "ledger.tamper/1" }

func (c put) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (done struct{}, err error) {
	for _, r := range c {
		if r.value == nil {
			w.Delete(r.b, r.key)
		} else {
			w.Put(r.b, r.key, r.value)
		}
	}
	return done, nil
}

// bench is a ledger in memory with rows that a test can change.
type bench struct {
	tx   *storetest.Tx
	rows []row
}

func newBench(t testing.TB, all []row) *bench {
	t.Helper()
	b := &bench{tx: storetest.NewTx(t, tables.Buckets()...), rows: all}
	b.put(t, all...)
	return b
}

func (b *bench) put(t testing.TB, r ...row) {
	t.Helper()
	if _, err := storetest.Do(b.tx, put(r)); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) verify(t testing.TB, o lverify.Options) lverify.Report {
	t.Helper()
	rep, err := lverify.Verify(t.Context(), b.tx.Reader(), o)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// full returns the rows of a flushed ledger of n calls.
func full(t testing.TB, seed uint64, n int) []row {
	t.Helper()
	f := newFile(t).open(true)
	f.fill(seed, n)
	f.flush()
	var all []row
	f.view(func(r store.Reader) { all = rows(r) })
	f.close()
	return all
}

func TestMain(m *testing.M) {
	hosttest.InMemory()
	goleak.VerifyTestMain(m)
}
