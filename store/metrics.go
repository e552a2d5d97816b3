package store

import (
	"errors"
	"math"
	"math/bits"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"

	"ronbox/appliance/obs"
)

// metrics holds the metrics of the store.
type metrics struct {
	obs      *obs.Metrics
	phase    [len(phaseNames)]func(float64)
	pace     pace
	batch    func(float64)
	wait     [lanes]func(float64)
	timeout  func(int)
	slowView func(int)
	poisoned func(float64)
	snapshot func(float64)

	kinds map[string]*kindSeries // by kind; owned by the committer
	// the last one used, since most commands of a group have one kind; owned by the committer
	last *kindSeries
}

// doubling returns histogram bounds from one value to another, each twice the last.
func doubling(from, to float64) []float64 {
	var out []float64
	for b := from; b <= to; b *= 2 {
		out = append(out, b)
	}
	return out
}

func families() []obs.Family {
	seconds := doubling(.0005, 8.2)
	return []obs.Family{
		{
			Name:    "store_commit_seconds",
			Type:    obs.Histogram,
			Labels:  []string{"phase"},
			Buckets: seconds,
			Help: "Time of one transaction: apply commands, spill rows to pages, grow the file, sync pages; " +
				"commit is the last three.",
		},
		{
			Name:    "store_batch_commands",
			Help:    "Commands in one transaction.",
			Type:    obs.Histogram,
			Buckets: doubling(1, 4096),
		},
		{
			Name:    "store_wait_seconds",
			Help:    "Time a command waited for the committer.",
			Type:    obs.Histogram,
			Labels:  []string{"lane"},
			Buckets: seconds,
		},
		{
			Name:   "store_commands_total",
			Help:   "Commands answered, by kind and result.",
			Type:   obs.Counter,
			Labels: []string{"kind", "result"},
		},
		{
			Name:   "store_command_panics_total",
			Help:   "Commands refused because they panicked.",
			Type:   obs.Counter,
			Labels: []string{"kind"},
		},
		{Name: "store_bytes", Help: "Length of the database file.", Type: obs.Gauge},
		{
			Name:   "store_pages",
			Help:   "Pages of the file that are used, free, or used and pending until older readers have gone.",
			Type:   obs.Gauge,
			Labels: []string{"state"},
		},
		{
			Name: "store_used_bytes",
			Help: "Bytes of the file that hold something, pages that older readers pin included.",
			Type: obs.Gauge,
		},
		{Name: "store_max_bytes", Help: "Used bytes of the file from which the store is full.", Type: obs.Gauge},
		{
			Name: "store_disk_free_bytes",
			Type: obs.Gauge,
			Help: "Free bytes of the file system that holds the file, as last looked at; NaN in memory, and where " +
				"there is no limit or none is told.",
		},
		{
			Name: "store_disk_reserve_bytes",
			Type: obs.Gauge,
			Help: "Of the free bytes, what work may not use: with less the store is full; NaN where " +
				"store_disk_free_bytes is.",
		},
		{Name: "store_read_tx_open", Help: "Read transactions open now.", Type: obs.Gauge},
		{Name: "store_read_tx_oldest_seconds", Help: "Age of the oldest read transaction open now.", Type: obs.Gauge},
		{Name: "store_read_tx_slow_total", Help: "Read transactions over their budget of 50 ms.", Type: obs.Counter},
		{Name: "store_poisoned", Help: "1 once the store has failed.", Type: obs.Gauge},
		{
			Name:    "store_snapshot_seconds",
			Help:    "Time of one snapshot, check included.",
			Type:    obs.Histogram,
			Buckets: doubling(.0625, 1024),
		},
	}
}

func newMetrics(m *obs.Metrics, s *Store) *metrics {
	m.Declare(families()...)
	out := &metrics{
		obs:      m,
		batch:    m.Histogram("store_batch_commands", ownService),
		timeout:  m.Counter("io_timeouts_total", ownService, "op", "commit"),
		slowView: m.Counter("store_read_tx_slow_total", ownService),
		poisoned: m.Set("store_poisoned", ownService),
		snapshot: m.Histogram("store_snapshot_seconds", ownService),
		kinds:    map[string]*kindSeries{},
	}
	for i, name := range phaseNames {
		out.phase[i] = m.Histogram("store_commit_seconds", ownService, "phase", name)
	}
	for l := range out.wait {
		out.wait[l] = m.Histogram("store_wait_seconds", ownService, "lane", Lane(l).String())
	}
	m.Gauge("store_bytes", ownService, func() float64 { return float64(s.Bytes()) })
	m.Gauge("store_pages", ownService, func() float64 { return float64(s.usedBytes() / PageSize) }, "state", "used")
	m.Gauge("store_pages", ownService, func() float64 { return float64(s.pages().free) }, "state", "free")
	m.Gauge("store_pages", ownService, func() float64 { return float64(s.pages().pending) }, "state", "pending")
	s.room.gauges(m)
	m.Gauge("store_read_tx_open", ownService, func() float64 { return float64(s.views.open.Load()) })
	m.Gauge("store_read_tx_oldest_seconds", ownService,
		func() float64 { return time.Duration(s.views.oldest(s.mono())).Seconds() })
	return out
}

// gauges registers the gauges of the last look at the space. An unknown value is NaN.
func (m *room) gauges(reg *obs.Metrics) {
	gauge := func(name string, read func(p *space) int64, known func(p *space) bool) {
		reg.Gauge(name, ownService, func() float64 {
			if p := m.last.Load(); p != nil && known(p) {
				return float64(read(p))
			}
			return math.NaN()
		})
	}
	always, limited := func(*space) bool { return true }, func(p *space) bool { return p.disk >= 0 }
	gauge("store_used_bytes", func(p *space) int64 { return p.used }, always)
	gauge("store_max_bytes", func(p *space) int64 { return p.capacity * roomFull / 100 }, always)
	gauge("store_disk_free_bytes", func(p *space) int64 { return p.disk }, limited)
	gauge("store_disk_reserve_bytes", func(p *space) int64 { return p.reserve() }, limited)
}

// pace collects the commit figures of Stats, with or without metrics.
type pace struct {
	commit, sync, batch histogram
	commands            atomic.Uint64
}

// committed records one commit. It is called by the committer.
func (m *metrics) committed(p phases, commands int) {
	for i, d := range [...]time.Duration{p.apply, p.spill, p.grow, p.sync, p.commit} {
		m.phase[i](d.Seconds())
	}
	m.batch(float64(commands))
	m.pace.commit.add(int64(p.commit))
	m.pace.sync.add(int64(p.sync))
	m.pace.batch.add(int64(commands))
	m.pace.commands.Add(uint64(commands))
}

// waited records the wait of a command. It is called by the caller of Commit, to keep the path of
// the committer short.
func (m *metrics) waited(l Lane, ns int64) { m.wait[l](time.Duration(ns).Seconds()) }

// kindSeries are the counters of one kind of command.
type kindSeries struct {
	kind                      string
	ok, refused, full, panics func(int)
}

func (m *metrics) kind(kind string) *kindSeries {
	if m.last != nil && m.last.kind == kind {
		return m.last
	}
	k := m.kinds[kind]
	if k == nil {
		answered := func(result string) func(int) {
			return m.obs.Counter("store_commands_total", ownService, "kind", kind, "result", result)
		}
		k = &kindSeries{
			kind: kind, ok: answered("ok"), refused: answered("refused"), full: answered("full"),
			panics: m.obs.Counter("store_command_panics_total", ownService, "kind", kind),
		}
		m.kinds[kind] = k
	}
	m.last = k
	return k
}

// result counts an answer. It is called by the committer.
func (m *metrics) result(h *head) {
	k := m.kind(h.kind)
	switch {
	case h.err == nil:
		k.ok(1)
	case errors.Is(h.err, ErrFull):
		k.full(1)
	default:
		k.refused(1)
	}
}

// BucketStats describes one bucket.
type BucketStats struct {
	Name  string
	Class Class
	Rows  uint64 // including those of sub-buckets
	Bytes int64  // size of its pages; 0 for a small bucket, which is stored inside its parent's page
	Depth int    // levels of its tree
}

// Stats describes the file and the commits since the store was opened.
type Stats struct {
	Bytes        int64 // length of the file
	MaxBytes     int64
	PageSize     int
	UsedBytes    int64 // pages that hold data
	FreePages    int64 // reused by new rows
	PendingPages int64 // free once older readers end, or at the next commit
	DiskFree     int64 // negative: unknown
	Reserve      int64 // part of DiskFree that is kept free
	Full         bool  // work is refused
	Buckets      []BucketStats
	Readers      int64
	OldestReader time.Duration
	Groups       uint64    // transactions committed
	Commands     uint64    // commands in them
	Commit       Quantiles // duration of a commit, ns
	Sync         Quantiles // part of Commit spent writing pages and in both syncs, ns
	Batch        Quantiles // commands in one transaction
}

// phaseNames are the values of the phase label, in the order of phases.
var phaseNames = [...]string{"apply", "spill", "grow", "sync", "commit"}

// phases splits the time of one commit as bbolt measures it.
type phases struct {
	apply  time.Duration // applying and merging commands, before the commit
	spill  time.Duration // writing rows to pages
	grow   time.Duration // writing the list of free pages and growing the file
	sync   time.Duration // writing pages, and both syncs
	commit time.Duration // spill, grow and sync
}

// phasesOf reads the statistics of a completed transaction.
func phasesOf(tx bolt.TxStats, apply, commit time.Duration) phases {
	p := phases{apply: apply, commit: commit, spill: tx.GetRebalanceTime() + tx.GetSpillTime(), sync: tx.GetWriteTime()}
	p.grow = max(commit-p.spill-p.sync, 0)
	return p
}

// histogramSlots is four slots for each doubling of a 64-bit number.
const histogramSlots = 64 * 4

// histogram counts numbers for quantiles with an error below a fifth. One goroutine adds; any
// goroutine may read.
type histogram struct{ slots [histogramSlots]atomic.Uint64 }

// slot returns the slot of a number: the position of its highest bit and the two bits below it.
func slot(v uint64) int {
	if v < 4 {
		return int(v)
	}
	top := bits.Len64(v) - 1
	return top*4 + int(v>>(top-2)&3)
}

// upper returns the largest number of a slot.
func upper(slot int) uint64 {
	if slot < 8 {
		return uint64(min(slot, 3))
	}
	top := slot / 4
	if top == 63 && slot%4 == 3 {
		return math.MaxUint64
	}
	return (uint64(slot%4)+5)<<(top-2) - 1
}

func (h *histogram) add(v int64) { h.slots[slot(uint64(max(v, 0)))].Add(1) }

// counts returns the numbers in each slot.
func (h *histogram) counts() (out slotCounts) {
	for i := range h.slots {
		out[i] = h.slots[i].Load()
	}
	return out
}

// quantiles returns upper bounds of the quantiles.
func (h *histogram) quantiles() Quantiles {
	counts := h.counts()
	return counts.quantiles()
}

// slotCounts are the counts of a histogram at one time.
type slotCounts [histogramSlots]uint64

func (c *slotCounts) quantiles() Quantiles {
	var all uint64
	for _, n := range c {
		all += n
	}
	at := func(share float64) uint64 {
		rank, seen := uint64(math.Ceil(share*float64(all))), uint64(0)
		for i, n := range c {
			if seen += n; n > 0 && seen >= rank {
				return upper(i)
			}
		}
		return 0
	}
	return Quantiles{Count: all, P50: at(.5), P99: at(.99), Max: at(1)}
}

// CommitTimes counts the commits of a store by their duration. The zero value counts none.
type CommitTimes struct{ counts slotCounts }

// CommitTimes returns the commits since the store was opened.
func (s *Store) CommitTimes() CommitTimes { return CommitTimes{s.metrics.pace.commit.counts()} }

// Since returns the durations, in ns, of the commits after an earlier result of the same store.
func (t CommitTimes) Since(earlier CommitTimes) Quantiles {
	for i, n := range earlier.counts {
		t.counts[i] -= n
	}
	return t.counts.quantiles()
}

// Quantiles holds quantiles of a histogram, each up to a fifth too large; all are zero if nothing
// was counted.
type Quantiles struct {
	Count         uint64
	P50, P99, Max uint64
}
