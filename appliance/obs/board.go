package obs

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Plane is what a failing probe takes away.
type Plane int

// The planes of a Probe.
const (
	WritePlane Plane = iota // writes only; reads go on
	ReadPlane               // reads, and with them writes
)

// Probe is one readiness key: a row of the table.
type Probe struct {
	Service string
	Key     string
	// Hard keys make the node unready; soft ones only their own service, and the node degraded.
	Hard bool
	// Own makes a soft key take its plane away from its own service.
	Own   bool
	Plane Plane
	// Every is the least time between two samples of Func.
	Every time.Duration
	// Bad and Good are how many samples in a row flip the key to failing and back; 0 counts as 1.
	Bad, Good int
	// Func is nil while the key holds, else the cause. It must not wait. A nil Func makes a key that only Set flips.
	Func func() error
}

// errStarting is the cause of a key that nobody has looked at yet.
var errStarting = errors.New("starting")

// row is a Probe and its state, guarded by the Board's mu.
type row struct {
	Probe
	cause   error // nil while the key holds
	fresh   bool  // neither set nor sampled yet
	against int   // samples in a row that contradict the state
	due     time.Time
	sets    uint // how often it was set or flipped
}

// set flips the row at once and starts the counts anew.
func (r *row) set(cause error) {
	r.cause, r.fresh, r.against = cause, false, 0
	r.sets++
}

// sampled applies one sample: the first one decides, later ones flip the row when enough contradict it in a row.
func (r *row) sampled(cause error) {
	if r.fresh || (cause == nil) == (r.cause == nil) {
		r.set(cause)
		return
	}
	r.against++
	need := r.Bad
	if cause == nil {
		need = r.Good
	}
	if r.against >= need {
		r.set(cause)
	}
}

// run calls Func; a panic of it is a cause like any other.
func (p Probe) run() (cause error) {
	defer func() {
		if v := recover(); v != nil {
			cause = fmt.Errorf("probe panicked: %v", v)
		}
	}()
	return p.Func()
}

// shown is what readers see of a row.
type shown struct {
	service, key string
	hard         bool
	own          bool // takes its plane from its service, though it is soft
	plane        Plane
	cause        error
}

// Board is the probe table of a node. It is safe for concurrent use; a nil *Board takes everything and is always ready. Readers take no lock:
// they see the table as the last change of it left it.
type Board struct {
	metrics *Metrics
	seen    atomic.Pointer[[]shown] // never changed once it is there

	mu   sync.Mutex // of those who change the table
	rows []*row     // by service, then key; guarded by mu
}

// NewBoard is an empty table. Each key added shows as readyz_degraded{cause=key}, 1 while it fails.
func NewBoard(m *Metrics) *Board {
	b := &Board{metrics: m}
	b.show()
	return b
}

// show lets readers see the rows as they are. It wants b.mu held.
func (b *Board) show() {
	seen := make([]shown, len(b.rows))
	for i, r := range b.rows {
		seen[i] = shown{r.Service, r.Key, r.Hard, r.Own, r.Plane, r.cause}
	}
	b.seen.Store(&seen)
}

// Add puts keys into the table. A new key fails with cause "starting" until it is first set or sampled; adding a key again replaces its
// definition and keeps its state.
func (b *Board) Add(p ...Probe) {
	if b == nil {
		return
	}
	for _, one := range p {
		b.add(one)
	}
}

func (b *Board) add(p Probe) {
	b.mu.Lock()
	at, known := b.find(p.Service, p.Key)
	if known {
		b.rows[at].Probe = p
	} else {
		b.rows = slices.Insert(b.rows, at, &row{Probe: p, cause: errStarting, fresh: true})
	}
	b.show()
	b.mu.Unlock()
	if !known {
		b.metrics.Gauge("readyz_degraded", p.Service, func() float64 { return b.failing(p.Service, p.Key) }, "cause", p.Key)
	}
}

// find wants b.mu held. It gives the row's place, or where it belongs.
func (b *Board) find(service, key string) (int, bool) {
	return slices.BinarySearchFunc(b.rows, [2]string{service, key}, func(r *row, want [2]string) int {
		return cmp.Or(cmp.Compare(r.Service, want[0]), cmp.Compare(r.Key, want[1]))
	})
}

// failing is 1 while the key fails.
func (b *Board) failing(service, key string) float64 {
	for _, r := range *b.seen.Load() {
		if r.service == service && r.key == key && r.cause != nil {
			return 1
		}
	}
	return 0
}

// Set flips a key at once, whatever its samples said: nil says that it holds. A key that was never added, such as one of a task that
// keeps failing, is added as hard and of the write plane.
func (b *Board) Set(service, key string, cause error) {
	if b == nil {
		return
	}
	if b.set(service, key, cause) {
		return
	}
	b.add(Probe{Service: service, Key: key, Hard: true, Plane: WritePlane})
	b.set(service, key, cause)
}

func (b *Board) set(service, key string, cause error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, ok := b.find(service, key)
	if ok {
		b.rows[at].set(cause)
		b.show()
	}
	return ok
}

// Soften makes every key of a service soft: it no longer bears on the readiness of the node.
func (b *Board) Soften(service string) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.rows {
		if r.Service == service {
			r.Hard = false
		}
	}
	b.show()
}

// Sample runs the Funcs that are due at now, one after the other and outside the lock, and applies Bad and Good. Several tasks may call
// it; each sample is run by one of them. A sample during which its key was set is stale.
func (b *Board) Sample(now time.Time) {
	if b == nil {
		return
	}
	for _, d := range b.claimDue(now) {
		cause := d.run()
		b.mu.Lock()
		if d.row.sets == d.sets {
			d.row.sampled(cause)
			b.show()
		}
		b.mu.Unlock()
	}
}

// claim is a sample to be taken: the probe, its row, and how often that had been set. A row is never taken out of the table.
type claim struct {
	Probe
	row  *row
	sets uint
}

// claimDue moves the due rows' next sample ahead.
func (b *Board) claimDue(now time.Time) []claim {
	b.mu.Lock()
	defer b.mu.Unlock()
	var due []claim
	for _, r := range b.rows {
		if r.Func != nil && !now.Before(r.due) {
			r.due = now.Add(r.Every)
			due = append(due, claim{r.Probe, r, r.sets})
		}
	}
	return due
}

// Report is the table read at one moment.
type Report struct {
	// Ready is what was asked: of one service that all its keys hold, of the node that all hard ones do; with plane "read" only keys of
	// the read plane count.
	Ready bool
	// WriteReady and ReadReady look at hard keys: whether writes, and whether reads, are taken. Of one service they look at its Own keys too.
	WriteReady bool
	ReadReady  bool
	// Degraded says that some key fails, hard or soft.
	Degraded bool
	// Missing are the failing keys as "service.key", sorted; never nil.
	Missing []string
	// Causes says why, by the same names; never nil.
	Causes map[string]string
	// RetryAfter is the seconds after which to ask again, 0 when Ready.
	RetryAfter int
	// Services has one entry for each service in the report; never nil.
	Services map[string]ServiceReport
}

// ServiceReport is one service's part of a Report.
type ServiceReport struct {
	Ready      bool // all its keys hold; with plane "read" those of the read plane
	WriteReady bool // all its hard and Own keys hold
	Missing    []string
}

// Report reads the table, without a lock. service is "" for the whole node; plane is "", "write" (the same) or "read". A service without keys is not ready.
func (b *Board) Report(service, plane string) Report {
	out := Report{
		Ready: true, WriteReady: true, ReadReady: true,
		Missing: []string{}, Causes: map[string]string{}, Services: map[string]ServiceReport{},
	}
	if b == nil {
		return out
	}
	for _, r := range *b.seen.Load() {
		if service != "" && r.service != service {
			continue
		}
		out.count(&r, service != "", plane)
	}
	if service != "" && len(out.Services) == 0 {
		out.Ready, out.WriteReady, out.ReadReady = false, false, false
		out.RetryAfter = retryAfter(service)
	}
	return out
}

// count adds one row to the report of one service or of the whole node.
func (out *Report) count(r *shown, one bool, plane string) {
	asked := r.plane == ReadPlane || plane != "read" // the row bears on the plane of the report
	stops := r.hard || r.own && one
	s, ok := out.Services[r.service]
	if !ok {
		s = ServiceReport{Ready: true, WriteReady: true, Missing: []string{}}
	}
	if r.cause != nil {
		name := r.service + "." + r.key
		out.Degraded = true
		out.Missing = append(out.Missing, name)
		out.Causes[name] = r.cause.Error()
		out.WriteReady = out.WriteReady && !stops
		out.ReadReady = out.ReadReady && (!stops || r.plane != ReadPlane)
		s.Ready = s.Ready && !asked
		s.WriteReady = s.WriteReady && !r.hard && !r.own
		s.Missing = append(s.Missing, r.key)
		if asked && (r.hard || one) {
			out.Ready = false
			out.RetryAfter = max(out.RetryAfter, retryAfter(r.service))
		}
	}
	out.Services[r.service] = s
}

// retryAfter is how many seconds a service usually takes to be ready again: those close to the user say so soonest.
func retryAfter(service string) int {
	switch service {
	case "edge":
		return 1
	case "wallet", "ledger":
		return 2
	}
	return 5
}
