// Command flatfile measures whether a file whose ledger closes periods stays one size. It pays in
// windows, on a clock of its own that goes some days on within each: payments with keys, every
// second one with a reference. In the middle of each window it closes all records before that
// moment, beside payments. It is called by flat-file.sh, which says what it prints.
//
// Usage: flatfile -dir DIR [-payments 200000] [-windows 10] [-rate N] [-max-bytes N] [-lone]
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/unit"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/period"
	"ronbox/engines/ledger/record"
	"ronbox/store"
)

const (
	payers   = 8
	burst    = 16 // payments of one call: what a group of single payments is on a busy node
	accounts = 10_000
	fortune  = 1 << 40
	settle   = 15 * time.Second
	few      = 256 // free pages
	most     = 600 // payments, five a second, that use free pages
	loners   = 20  // payments, one a second, whose bytes are measured
)

// bench is a node without HTTP: a store, a ledger and a closer, with all their tasks.
type bench struct {
	dir    string
	rate   int          // payments a second; 0: as many as there can be
	lone   bool         // lone payments and a closing without payments are measured, too
	ahead  atomic.Int64 // of the clock, ns
	store  *store.Store
	ledger *ledger.Local
	closer *period.Closer
	keys   atomic.Uint64
	refs   atomic.Uint64 // references paid
	paid   atomic.Uint64
	full   atomic.Uint64 // calls that were refused, since the store was full

	periods uint64 // closed, or under way
}

func main() {
	log.SetFlags(0)
	b := &bench{}
	flag.StringVar(&b.dir, "dir", "", "empty folder for the file")
	flag.IntVar(&b.rate, "rate", 0, "payments a second; 0: as many as there can be")
	flag.BoolVar(&b.lone, "lone", false, "measure lone payments, and a closing without payments")
	payments := flag.Int("payments", 200_000, "of a window")
	windows := flag.Int("windows", 10, "windows")
	maxBytes := flag.Int64("max-bytes", 0, "store.max_bytes; the file is filled before the first closing")
	flag.Parse()
	if err := b.run(*payments, *windows, *maxBytes); err != nil {
		log.Fatal(err)
	}
}

func (b *bench) now() time.Time { return time.Now().Add(time.Duration(b.ahead.Load())) }

func (b *bench) run(payments, windows int, maxBytes int64) error {
	ctx := context.Background()
	path := filepath.Join(b.dir, "ronbox.db")
	id, err := store.NewIdentity(b.now())
	if err := errors.Join(err, store.Create(path, id)); err != nil {
		return err
	}
	catalog, cfg := flow.NewCatalog(nil, nil), store.DefaultConfig()
	if maxBytes != 0 {
		cfg.MaxBytes = unit.Size(maxBytes)
	}
	b.store = store.New(cfg, store.Options{Path: path, Catalog: catalog, Now: b.now})
	b.store.SetReclaimable(func() int64 { return b.closer.Reclaimable() })
	b.ledger = ledger.New(ledger.DefaultConfig(), ledger.Deps{Catalog: catalog, Store: b.store, Now: b.now})
	b.closer = period.NewCloser(period.Config{Dir: filepath.Join(b.dir, "periods"), Make: true}, period.Deps{
		Store: b.store, Ledger: b.ledger, Catalog: catalog, Now: b.now,
	})
	if err := errors.Join(b.store.Open(ctx), b.store.Prepare(ctx)); err != nil {
		return err
	}
	tasks := flow.NewSupervisor(ctx, catalog, flow.Hooks{})
	tasks.Start(b.store.Tasks()...)
	if err := b.ledger.Recover(ctx); err != nil {
		return err
	}
	tasks.Start(b.ledger.Tasks()...)
	tasks.Start(b.closer.Tasks()...)
	err = b.measure(ctx, payments, windows, maxBytes != 0)
	tasks.Cancel("ledger", 10*time.Second)
	b.store.CloseLanes()
	tasks.Close()
	return errors.Join(err, b.store.Close())
}

// measure pays and closes, and prints a line for each window.
func (b *bench) measure(ctx context.Context, payments, windows int, fills bool) error {
	if err := b.fund(ctx); err != nil {
		return err
	}
	if fills {
		if err := b.fill(ctx); err != nil {
			return err
		}
	}
	quiet := 0.0
	var calms, besides []figures
	fmt.Println("window   used MiB   less references   to drop   free   calm /s   p50 ms   B/payment   closing /s   p50 ms   B/payment   closing s   full")
	for w := range windows {
		calm, err := b.pay(ctx, payments/2)
		if w == 0 && err == nil && b.lone {
			quiet, err = b.lonely(ctx)
		}
		if err != nil {
			return err
		}
		begun, err := b.close(ctx)
		if err != nil {
			return err
		}
		beside, err := b.pay(ctx, payments/2)
		if err == nil {
			err = b.closed(ctx, b.periods)
		}
		if err != nil {
			return err
		}
		used := b.used()
		if w > 0 { // the first half window has nothing to drop
			calms, besides = append(calms, calm), append(besides, beside)
		}
		h, err := b.closer.Horizon(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("%6d %10.1f %17.1f %9.1f %6.1f %9.0f %8.2f %11.0f %12.0f %8.2f %11.0f %11.1f %6d\n", w+1, mib(used),
			mib(used-int64(b.refs.Load())*16), mib(h.Reclaim), mib(b.store.Bytes()-used), calm.rate, calm.p50, calm.bytes, beside.rate, beside.p50, beside.bytes,
			time.Since(begun).Seconds(), b.full.Swap(0))
	}
	if b.rate == 0 {
		fmt.Printf("payments beside a closing: %.2f of the rate, p50 %.2f times as long (medians of windows 2 to %d)\n",
			median(besides, func(f figures) float64 { return f.rate })/median(calms, func(f figures) float64 { return f.rate }),
			median(besides, func(f figures) float64 { return f.p50 })/median(calms, func(f figures) float64 { return f.p50 }), windows)
	}
	if !b.lone {
		return nil
	}
	dropping, err := b.lonely(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("a lone payment writes %.0f bytes before the first closing, and %.0f while rows are dropped\n", quiet, dropping)
	return b.alone(ctx)
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

func median(all []figures, of func(figures) float64) float64 {
	var v []float64
	for _, f := range all {
		v = append(v, of(f))
	}
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return v[len(v)/2]
}

// used returns the bytes of the file that are no free pages.
func (b *bench) used() int64 { return b.store.Bytes() - b.store.PageUse().Free*store.PageSize }

func account(n uint64) string { return "acct/" + strconv.FormatUint(n, 10) }

func (b *bench) fund(ctx context.Context) error {
	ops := []ledger.Op{{Code: record.OpAsset, Asset: "ron"}}
	for n := range uint64(accounts) {
		ops = append(ops, ledger.Op{
			Code: record.OpIssue, To: account(n), Asset: "ron", Amount: engines.AmountOf(0, fortune),
		})
	}
	for part := range slices.Chunk(ops, 1000) {
		if err := b.commit(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

// commit makes a call, again while the store is full.
func (b *bench) commit(ctx context.Context, ops []ledger.Op) error {
	for {
		outs, err := b.ledger.Commit(ctx, ops)
		if errors.Is(err, ledger.ErrFull) {
			b.full.Add(1)
			time.Sleep(10 * time.Millisecond)
			continue
		}
		for _, o := range outs {
			if err == nil && o.Reject != nil {
				err = o.Reject
			}
		}
		return err
	}
}

// payment returns the next payment. Each payer pays from accounts of its own.
func (b *bench) payment(payer uint64) ledger.Op {
	n := b.keys.Add(1)
	key := strconv.FormatUint(n, 36)
	o := ledger.Op{
		Code: record.OpTransfer, From: account(n*payers%accounts/payers*payers + payer), To: account((n * 7919) % accounts),
		Asset: "ron", Amount: engines.AmountOf(0, 1), Principal: "uid:1000", CapID: "cap-1",
		Dedupe: ledger.DedupeKey{Scope: "uid:1000", Key: key}, Idem: key, TTL: 24 * time.Hour,
	}
	if o.To == o.From {
		o.To = account((n*7919 + 1) % accounts)
	}
	binary.LittleEndian.PutUint64(o.Fingerprint[:], n)
	if n%2 == 0 {
		o.Reference = "order-" + key
		b.refs.Add(1)
	}
	return o
}

// figures describe payments.
type figures struct {
	rate  float64 // a second
	p50   float64 // of a call, ms
	bytes float64 // that reached the page cache for the disk, a payment
}

// pay makes n payments and measures them.
func (b *bench) pay(ctx context.Context, n int) (f figures, err error) {
	var all sync.WaitGroup
	errs, took := make([]error, payers), make([][]time.Duration, payers)
	begun, wrote := time.Now(), written()
	for p := range payers {
		all.Go(func() {
			ops := make([]ledger.Op, burst)
			for k := range n / payers / burst {
				if b.rate != 0 { // a payer that is late pays on at once
					time.Sleep(time.Until(begun.Add(time.Duration(k) * time.Second * payers * burst / time.Duration(b.rate))))
				}
				for i := range ops {
					ops[i] = b.payment(uint64(p))
				}
				at := time.Now()
				if errs[p] = b.commit(ctx, ops); errs[p] != nil {
					return
				}
				took[p] = append(took[p], time.Since(at))
				b.paid.Add(burst)
			}
		})
	}
	all.Wait()
	each := slices.Concat(took...)
	if err := errors.Join(errs...); err != nil || len(each) == 0 {
		return f, errors.Join(err, errors.New("too few payments"))
	}
	slices.Sort(each)
	made := float64(len(each) * burst)
	return figures{
		rate: made / time.Since(begun).Seconds(), p50: each[len(each)/2].Seconds() * 1000,
		bytes: float64(written()-wrote) / made,
	}, nil
}

// lonely makes payments one second apart, and returns the bytes that each has written. Before it
// waits until the rows that a burst changed are written, and its free pages are used.
func (b *bench) lonely(ctx context.Context) (float64, error) {
	time.Sleep(settle)
	one := func(rest time.Duration) error {
		time.Sleep(rest)
		return b.commit(ctx, []ledger.Op{b.payment(0)})
	}
	for range most {
		if b.store.PageUse().Free < few {
			break
		}
		if err := one(time.Second / 5); err != nil {
			return 0, err
		}
	}
	if err := one(2 * time.Second); err != nil {
		return 0, err
	}
	wrote := written()
	for range loners {
		if err := one(time.Second); err != nil {
			return 0, err
		}
	}
	return float64(written()-wrote) / loners, nil
}

// written returns the bytes that this process has sent to disks.
func written() (n uint64) {
	raw, _ := os.ReadFile("/proc/self/io")
	_, rest, _ := bytes.Cut(raw, []byte("\nwrite_bytes: "))
	text, _, _ := bytes.Cut(rest, []byte("\n"))
	n, _ = strconv.ParseUint(string(text), 10, 64)
	return n
}

// fill pays until the store is full, some days by its clock, and closes what no key counts for.
func (b *bench) fill(ctx context.Context) error {
	for n := 1; ; n++ {
		b.ahead.Add(int64(15 * time.Minute))
		if n%32 == 0 { // slots of keys are sealed and dropped once a second
			time.Sleep(2 * time.Second)
		}
		ops := make([]ledger.Op, 512)
		for i := range ops {
			ops[i] = b.payment(0)
		}
		_, err := b.ledger.Commit(ctx, ops)
		if errors.Is(err, ledger.ErrFull) {
			break
		}
		if err != nil {
			return err
		}
	}
	fmt.Printf("full (507) after %d payments, with %.1f MiB used\n", b.keys.Load(), mib(b.used()))
	p, err := b.closer.Close(ctx, period.Ask{Before: b.now()})
	if err == nil {
		b.periods = p.Period
		err = b.closed(ctx, b.periods)
	}
	return err
}

// close turns the clock on until no key counts for what was paid so far, and begins to close it.
func (b *bench) close(ctx context.Context) (begun time.Time, err error) {
	last, err := b.ledger.Head(ctx)
	if err != nil {
		return begun, err
	}
	ask := period.Ask{Before: b.now()}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		// Slots of keys end with the next key, and are dropped while the clock goes on.
		b.ahead.Add(int64(time.Hour))
		if err := b.commit(ctx, []ledger.Op{b.payment(0)}); err != nil {
			return begun, err
		}
		p, err := b.closer.Plan(ctx, ask)
		switch {
		case errors.Is(err, period.ErrNothing) || errors.As(err, new(*period.RecentError)) || err == nil && p.ToSeq < last.Seq:
			continue
		case err == nil:
			b.periods = p.Period
			_, err = b.closer.Close(ctx, ask)
		}
		return time.Now(), err
	}
	return begun, errors.New("keys still count after a minute")
}

// closed waits until so many periods are closed.
func (b *bench) closed(ctx context.Context, n uint64) error {
	for ; ; time.Sleep(10 * time.Millisecond) {
		h, err := b.closer.Horizon(ctx)
		if s := b.closer.State(); err == nil && s.State == "failed" {
			err = errors.New(s.Error)
		}
		if err != nil || h.Period >= n {
			return err
		}
	}
}

// alone closes the rest without payments beside, and prints what a record takes.
func (b *bench) alone(ctx context.Context) error {
	before, records := cpu(), b.paid.Load()
	begun, err := b.close(ctx)
	if err == nil {
		err = b.closed(ctx, b.periods)
	}
	list, _ := b.closer.Periods(ctx, 0, 1<<10)
	if err != nil || len(list) == 0 {
		return errors.Join(err, errors.New("no period"))
	}
	last := list[len(list)-1].Statement
	took, worked := time.Since(begun), cpu()-before
	fmt.Printf("a closing of %d records without payments: %.1f s, %.1f s of CPU; of 10,000,000: %.0f minutes\n", last.Records(),
		took.Seconds(), worked.Seconds(), took.Minutes()/float64(last.Records())*1e7)
	fmt.Printf("%d payments in all, %d references, %d periods\n", records, b.refs.Load(), len(list))
	return nil
}

// cpu returns the processor time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // never fails
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
