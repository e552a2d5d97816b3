package obs

import (
	"errors"
	"fmt"
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
	Hard  bool
	Plane Plane
	// Every is the least time between two samples of Func.
	Every time.Duration
	// Bad and Good are how many samples in a row flip the key to failing and back; 0 counts as 1.
	Bad, Good int
	// Func is nil while the key holds, else says what is wrong. It must not wait. A nil Func makes a key that only Set flips.
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
