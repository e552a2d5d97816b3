// Command flatfile measures whether a file whose ledger closes periods stays one size. It pays in
// windows, on a clock of its own that goes some days on within each: payments with keys, every
// second one with a reference. In the middle of each window it closes all records before that
// moment, beside payments. It is called by flat-file.sh, which says what it prints.
//
// Usage: flatfile -dir DIR [-payments 200000] [-windows 10] [-rate N] [-max-bytes N] [-lone]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/unit"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/period"
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
	fmt.Println("window   used MiB   less references   to drop   free   calm /s   p50 ms   B/payment   " +
		"closing /s   p50 ms   B/payment   closing s   full")
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
		fmt.Printf("%6d %10.1f %17.1f %9.1f %6.1f", w+1, mib(used), mib(used-int64(b.refs.Load())*16), mib(h.Reclaim),
			mib(b.store.Bytes()-used))
		fmt.Printf(" %9.0f %8.2f %11.0f", calm.rate, calm.p50, calm.bytes)
		fmt.Printf(" %12.0f %8.2f %11.0f", beside.rate, beside.p50, beside.bytes)
		fmt.Printf(" %11.1f %6d\n", time.Since(begun).Seconds(), b.full.Swap(0))
	}
	if b.rate == 0 {
		ratio := func(of func(figures) float64) float64 { return median(besides, of) / median(calms, of) }
		fmt.Printf("payments beside a closing: %.2f of the rate, p50 %.2f times as long (medians of windows 2 to %d)\n",
			ratio(func(f figures) float64 { return f.rate }), ratio(func(f figures) float64 { return f.p50 }), windows)
	}
	if !b.lone {
		return nil
	}
	dropping, err := b.lonely(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("a lone payment writes %.0f bytes before the first closing, and %.0f while rows are dropped\n", quiet,
		dropping)
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
		keys := errors.Is(err, period.ErrNothing) || errors.As(err, new(*period.RecentError))
		switch {
		case keys || err == nil && p.ToSeq < last.Seq:
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
	fmt.Printf("a closing of %d records without payments: %.1f s, %.1f s of CPU; of 10,000,000: %.0f minutes\n",
		last.Records(), took.Seconds(), worked.Seconds(), took.Minutes()/float64(last.Records())*1e7)
	fmt.Printf("%d payments in all, %d references, %d periods\n", records, b.refs.Load(), len(list))
	return nil
}

// cpu returns the processor time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // never fails
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
