package ledger_test

import (
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ronbox/appliance/unit"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
)

// DROP_SLOTS is the number of slots of the idempotency index that BenchmarkDrop seals. Each holds
// the maximum number of keys of a slot. All but the newest are dropped: half of them while the file
// is in the page cache, the others after a cold boot.
const (
	dropSlots    = 5
	dropAccounts = 10_000
	dropPayers   = 2
	dropFill     = 4096 // ops of a burst that fills a slot
	dropBurst    = 256  // ops of a measured burst
	dropBursts   = 200  // per side of a round: a drop delays one burst of each payer, which is 1 % of them
	dropAfter    = 50   // bursts before the drop
)

// dropper is a ledger that drops its slots one at a time as the clock advances.
type dropper struct {
	*rig
	payers []*traffic
}

// newDropper returns a ledger with sealed slots that are one hour apart on its clock.
func newDropper(b *testing.B, slots int) *dropper {
	d := &dropper{rig: newRig(b, ledgertest.NewClock(), func(c *ledger.Config) {
		c.SlotWidth, c.VerifyOnOpen = unit.Duration(time.Hour), ledger.VerifyNone
	}).declare("ron")}
	d.unsealed()
	names := d.fund(dropAccounts)
	for i := range dropPayers {
		g := newTraffic(names[i*len(names)/dropPayers : (i+1)*len(names)/dropPayers])
		g.keys = uint64(i) << 32
		d.payers = append(d.payers, g)
	}
	for range slots {
		d.pay(d.cfg.SlotMax/dropFill, dropFill, nil)
		d.clock.Advance(time.Hour)
	}
	d.pay(dropPayers, dropBurst, nil) // the last slot is closed by this
	if err := d.l.Seal(d.ctx()); err != nil {
		b.Fatal(err)
	}
	if d.l.Runs() != slots {
		b.Fatalf("%d runs, want %d", d.l.Runs(), slots)
	}
	return d
}

// unsealed starts the tasks of the ledger except the sealer. The caller seals and drops instead.
func (r *rig) unsealed() {
	for _, task := range r.l.Tasks() {
		if task.Name != "sealer" {
			r.sup.Start(task)
		}
	}
}

// pay commits bursts from two concurrent payers and returns the duration of each burst in order. It
// starts meanwhile, if not nil, after dropAfter bursts.
func (d *dropper) pay(bursts, size int, meanwhile func()) (took []time.Duration) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, g := range d.payers {
		all.Go(func() {
			ops := make([]ledger.Op, size)
			for range bursts / len(d.payers) {
				for i := range ops {
					ops[i] = g.keyed()
				}
				begun := time.Now()
				d.accept(ops...)
				mu.Lock()
				if took = append(took, time.Since(begun)); len(took) == dropAfter && meanwhile != nil {
					all.Go(meanwhile)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	return took
}

// cold reboots after evicting the file from the page cache.
func (d *dropper) cold() {
	d.stop()
	f, err := os.Open(d.path)
	if err != nil {
		d.t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		d.t.Fatal(err)
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		d.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		d.t.Fatal(err)
	}
	d.open()
	d.unsealed()
}

// dropRound holds the durations of one round: bursts without a drop, bursts during a drop, and the
// drop.
type dropRound struct {
	calm, beside []time.Duration // in order
	drop         time.Duration
}

// round measures bursts without a drop, and then bursts while the oldest run is dropped.
func (d *dropper) round() (r dropRound) {
	r.calm = d.pay(dropBursts, dropBurst, nil)
	runs := d.l.Runs()
	r.beside = d.pay(dropBursts, dropBurst, func() {
		begun := time.Now()
		if err := d.l.DropOld(d.ctx()); err != nil {
			d.t.Error(err)
		}
		r.drop = time.Since(begun)
	})
	if got := d.l.Runs(); got != runs-1 {
		d.t.Errorf("%d runs of %d are left after a drop", got, runs)
	}
	return r
}

// BenchmarkDrop measures how much a drop of a run delays concurrent bursts. It reports the worst
// round of each kind: the 99th percentile of the bursts without and with a drop, and the
// difference. One iteration is all rounds.
func BenchmarkDrop(b *testing.B) {
	slots := dropSlots
	if text := os.Getenv("DROP_SLOTS"); text != "" {
		var err error
		if slots, err = strconv.Atoi(text); err != nil || slots < 3 {
			b.Fatalf("DROP_SLOTS = %s: must be 3 or more: %v", text, err)
		}
	}
	d := newDropper(b, slots)
	// one more hour makes the oldest slot too old
	d.clock.Advance(d.cfg.KeyTTL.D() - time.Duration(slots)*time.Hour - time.Hour/2)
	p99 := func(took []time.Duration) time.Duration { return took[len(took)*99/100] }
	ms := func(t time.Duration) float64 { return t.Seconds() * 1000 }
	tell := func(kind string, rounds int) {
		var calm, beside, more, worst, drop time.Duration
		for range rounds {
			d.clock.Advance(time.Hour)
			r := d.round()
			b.Logf("%s: p50 %.1f and %.1f, p99 %.1f and %.1f, worst %.1f and %.1f, drop %.1f ms", kind,
				ms(r.calm[len(r.calm)/2]), ms(r.beside[len(r.beside)/2]), ms(p99(r.calm)), ms(p99(r.beside)),
				ms(r.calm[len(r.calm)-1]), ms(r.beside[len(r.beside)-1]), ms(r.drop))
			calm, beside, more = max(calm, p99(r.calm)), max(beside, p99(r.beside)), max(
				more,
				p99(r.beside)-p99(r.calm),
			)
			worst, drop = max(worst, r.beside[len(r.beside)-1]), max(drop, r.drop)
		}
		b.ReportMetric(ms(calm), kind+"-calm-p99-ms")
		b.ReportMetric(ms(beside), kind+"-p99-ms")
		b.ReportMetric(ms(more), kind+"-more-p99-ms")
		b.ReportMetric(ms(drop), kind+"-drop-ms")
	}
	tell("warm", slots/2)
	d.cold()
	tell("cold", slots-1-slots/2)
	b.ReportMetric(0, "ns/op")
}
