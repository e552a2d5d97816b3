package ledgertest

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"ronbox/engines/ledger"
)

// Faults say how often a Faulty does what; each is a share of the calls, 0 to 1. The zero Faults let every call pass.
type Faults struct {
	Seed uint64

	Refuse float64 // a write fails and says that nothing was done; a read fails
	Lose   float64 // a write is not done, and its outcome is unknown
	Forget float64 // a write is done, but the answer is lost: its outcome is unknown
	Late   float64 // the outcome is unknown, and the write is done with a later call
	Repeat float64 // a write is done, and done again: at once, or with a later call
	Yield  float64 // a write waits until another one went first, MaxStall at most
	Stall  float64 // a call waits, up to MaxStall, before it is done or before its answer

	MaxStall time.Duration

	Outage float64       // share of the windows in which writes, or reads, fail one and all
	Window time.Duration // length of a window; 0: no outages
}

// Storm is a bit of everything.
func Storm(seed uint64) Faults {
	return Faults{
		Seed: seed, Refuse: .05, Lose: .05, Forget: .08, Late: .04, Repeat: .05, Yield: .05, Stall: .1,
		MaxStall: 2 * time.Second, Outage: .05, Window: 3 * time.Second,
	}
}

// Fault is one kind of Faults, as it is counted.
type Fault string

// The faults.
const (
	Refused   Fault = "refused"
	Lost      Fault = "lost"
	Forgotten Fault = "forgotten"
	Late      Fault = "late"
	Repeated  Fault = "repeated"
	Yielded   Fault = "yielded"
	Stalled   Fault = "stalled"
	Outage    Fault = "outage"
)

// fate is what is to happen to one call.
type fate struct {
	kind   Fault         // "" for nothing
	stall  time.Duration // 0: none
	after  bool          // the stall is between the deed and the answer
	later  int           // of Late and the later half of Repeated: how many calls later
	repeat bool          // of Repeated: at once
}

// dice are those of one call: they depend on the seed, on what is asked and on how often it was asked before, and on nothing else, so that
// tasks which run side by side meet the same faults whatever their order.
func (f Faults) dice(label string, attempt int) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s#%d", label, attempt)
	return rand.New(rand.NewPCG(f.Seed, h.Sum64()))
}

func (f Faults) fate(d *rand.Rand, write bool) (is fate) {
	if d.Float64() < f.Stall && f.MaxStall > 0 {
		is.stall, is.after = time.Duration(1+d.Int64N(int64(f.MaxStall))), d.Float64() < .5
	}
	kinds := []struct {
		share float64
		kind  Fault
	}{{f.Refuse, Refused}, {f.Lose, Lost}, {f.Forget, Forgotten}, {f.Late, Late}, {f.Repeat, Repeated}, {f.Yield, Yielded}}
	if !write {
		kinds = kinds[:1]
	}
	u := d.Float64()
	for _, k := range kinds {
		if u -= k.share; u < 0 {
			is.kind = k.kind
			break
		}
	}
	is.later, is.repeat = 1+d.IntN(8), d.Float64() < .5
	return is
}

// out tells whether the window that is now is one of outage. Writes and reads have windows of their own.
func (f Faults) out(since time.Duration, write bool) bool {
	if f.Window <= 0 {
		return false
	}
	return f.dice(fmt.Sprintf("window %t", write), int(since/f.Window)).Float64() < f.Outage
}

var (
	errRefused = errors.New("fault: refused")
	errOutage  = errors.New("fault: outage")
	errLost    = errors.New("fault: no answer")
)

func none(cause error) error { return &ledger.UnavailableError{Cause: cause} }
func unknown() error         { return &ledger.UnavailableError{Unknown: true, Cause: errLost} }
