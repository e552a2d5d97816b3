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

// Plane is the part of the service that a failing probe disables.
type Plane int

// The planes of a Probe.
const (
	WritePlane Plane = iota // writes only
	ReadPlane               // reads and writes
)

// Probe is one readiness key, a row of the table.
type Probe struct {
	Service string
	Key     string
	// Hard keys make the node unready. Soft keys make only their own service unready, and the node
	// degraded.
	Hard bool
	// Own makes a soft key disable its plane in its own service.
	Own   bool
	Plane Plane
	// Every is the least time between two calls of Func.
	Every time.Duration
	// Bad and Good are the numbers of consecutive samples that flip the key to failing and back. 0
	// counts as 1.
	Bad, Good int
	// Func returns nil if the key is good, or the cause. It must not block. A key without Func
	// changes only by Set.
	Func func() error
}

// State is the cause of a key of a service that was not asked for: it names the state of the
// service. Such a key fails only in the report of that service alone. It does not degrade the node.
type State string

func (s State) Error() string { return string(s) }

// stateOf returns the state of a service that cause names, or "".
func stateOf(cause error) string {
	s, _ := errors.AsType[State](cause)
	return string(s)
}

// errStarting is the cause of a key that was neither set nor sampled yet.
var errStarting = errors.New("starting")

// row is a Probe and its state, guarded by Board.mu.
type row struct {
	Probe
	cause   error // nil while the key is good
	fresh   bool  // neither set nor sampled yet
	against int   // consecutive samples that contradict the state
	due     time.Time
	sets    uint // number of changes
}

// set changes the row at once and resets the counts.
func (r *row) set(cause error) {
	r.cause, r.fresh, r.against = cause, false, 0
	r.sets++
}

// sampled applies one sample. The first sample decides. Later samples flip the row if enough
// consecutive ones contradict it.
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

// run calls Func. A panic is a cause like any other.
func (p Probe) run() (cause error) {
	defer func() {
		if v := recover(); v != nil {
			cause = fmt.Errorf("probe panicked: %v", v)
		}
	}()
	return p.Func()
}

// shown is the published state of a row.
type shown struct {
	service, key string
	hard         bool
	own          bool // disables its plane in its service, though it is soft
	plane        Plane
	cause        error
}

// Board is the probe table of a node. It is safe for concurrent use. A nil *Board ignores changes
// and is always ready. Readers take no lock: they see the table as of its last change.
type Board struct {
	metrics *Metrics
	seen    atomic.Pointer[[]shown] // immutable once stored
	silent  atomic.Bool             // the keys are not exported as failing

	mu   sync.Mutex // a leaf: it serializes changes of the table
	rows []*row     // by service, then key; guarded by mu
}

// NewBoard returns an empty table. Each added key is exported as readyz_degraded{cause=key}, which
// is 1 while the key fails.
func NewBoard(m *Metrics) *Board {
	b := &Board{metrics: m}
	b.show()
	return b
}

// show publishes the rows. Called with b.mu held.
func (b *Board) show() {
	seen := make([]shown, len(b.rows))
	for i, r := range b.rows {
		seen[i] = shown{r.Service, r.Key, r.Hard, r.Own, r.Plane, r.cause}
	}
	b.seen.Store(&seen)
}

// Add adds keys to the table. A new key fails with cause "starting" until it is first set or
// sampled. Adding a key again replaces its definition and keeps its state.
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
		b.metrics.Gauge("readyz_degraded", p.Service, func() float64 { return b.failing(p.Service, p.Key) }, "cause",
			p.Key)
	}
}

// find returns the index of the row, or where to insert it. Called with b.mu held.
func (b *Board) find(service, key string) (int, bool) {
	return slices.BinarySearchFunc(b.rows, [2]string{service, key}, func(r *row, want [2]string) int {
		return cmp.Or(cmp.Compare(r.Service, want[0]), cmp.Compare(r.Key, want[1]))
	})
}

// Silence determines whether readyz_degraded is 0 for every key, because the services of this node
// do not run by intention.
func (b *Board) Silence(silent bool) { b.silent.Store(silent) }

// failing returns 1 while the key fails, else 0.
func (b *Board) failing(service, key string) float64 {
	if b.silent.Load() {
		return 0
	}
	for _, r := range *b.seen.Load() {
		if r.service == service && r.key == key && r.cause != nil && stateOf(r.cause) == "" {
			return 1
		}
	}
	return 0
}

// Set changes a key at once, regardless of its samples. A nil cause makes it good. A key that was
// not added, such as that of a task that keeps failing, is added as a hard key of the write plane.
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

// Soften makes every key of a service soft, so that it no longer affects the readiness of the node.
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

// Sample calls the Funcs that are due at now, one at a time and without the lock, and applies Bad
// and Good. Several tasks may call it; each sample is taken by one of them. A sample is discarded
// if its key was set meanwhile.
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

// claim is a sample to take: the probe, its row, and the row's number of changes. A row is never
// removed from the table.
type claim struct {
	Probe
	row  *row
	sets uint
}

// claimDue returns the samples that are due and schedules the next ones.
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

// Report is the state of the table at one moment.
type Report struct {
	// Ready reports whether all keys of the requested service are good, or all hard keys of the
	// node. With plane "read" only keys of the read plane count.
	Ready bool
	// WriteReady and ReadReady report whether writes and reads are accepted. They depend on hard
	// keys and, for one service, on its Own keys.
	WriteReady bool
	ReadReady  bool
	// Degraded reports whether any key fails, hard or soft.
	Degraded bool
	// Missing lists the failing keys as "service.key", sorted. It is never nil.
	Missing []string
	// Causes maps each failing key to its cause. It is never nil.
	Causes map[string]string
	// RetryAfter is the number of seconds until the next request, or 0 if Ready.
	RetryAfter int
	// Services has one entry for each service in the report. It is never nil.
	Services map[string]ServiceReport
}

// ServiceReport is the part of a Report about one service.
type ServiceReport struct {
	Ready      bool // all its keys are good; with plane "read" those of the read plane
	WriteReady bool // all its hard and Own keys are good
	Missing    []string
	State      string // why it is not ready though nothing is wrong; usually ""
}

// Report returns the state of the table, without taking a lock. service is "" for the whole node.
// plane is "read", or "" or "write". A service without keys is not ready.
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
	asked := r.plane == ReadPlane || plane != "read" // the row counts for the requested plane
	stops := r.hard || r.own && one
	s, ok := out.Services[r.service]
	if !ok {
		s = ServiceReport{Ready: true, WriteReady: true, Missing: []string{}}
	}
	state := stateOf(r.cause)
	if state != "" {
		s.State = state
		s.Ready = s.Ready && !asked
	}
	if r.cause != nil && (state == "" || one) {
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

// retryAfter returns the seconds after which a service is usually ready again. It is shorter for
// services close to the user.
func retryAfter(service string) int {
	switch service {
	case "edge":
		return 1
	case "wallet", "ledger":
		return 2
	}
	return 5
}
