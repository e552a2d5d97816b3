package wallet

import (
	"cmp"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/ledger"
)

// flightKey is a key of a principal.
type flightKey struct{ scope, key string }

// call is a request under way, with everybody who waits for it. Its fence is the fingerprint: who comes with another one is refused.
type call = flow.Call[flightKey, b3.Digest, *ledger.Outcome]

// flightCalls bounds the requests under way, those that wait for a nonce included: as many as the front lets in at the most.
const flightCalls = 65_536

// flightWaiters is how many may wait for a request beside the one that began it.
const flightWaiters = 8

// job is one request on its way to the ledger. It is answered exactly once, through its call.
type job struct {
	e        *Engine
	call     *call
	op       ledger.Op
	needs    []need // by account: the nonces it uses
	one      [1]need
	ticket   uint64    // place in the order in which jobs were noted
	claimed  bool      // is begun: the ledger has had it, and refused it if it is in no burst
	until    time.Time // how long it waits for nonces that nobody has; zero: it was not early yet
	weight   int       // operations
	deadline time.Time
	grace    time.Duration // that its caller waits beyond it once it is begun
	corrID   string
	room     int    // places taken for the operations of a batch
	scope    string // by whom
}

// order sorts a burst, so that consecutive nonces of an account follow each other.
func (j *job) order(other *job) int {
	a, b := j.first(), other.first()
	return cmp.Or(cmp.Compare(a.account, b.account), cmp.Compare(a.lo, b.lo), cmp.Compare(j.ticket, other.ticket))
}

// first is what j needs first.
func (j *job) first() need {
	if len(j.needs) == 0 {
		return need{}
	}
	return j.needs[0]
}

// wants notes what j, which is one operation, needs.
func (j *job) wants(account string, nonce uint64) {
	if account != "" {
		j.one[0] = need{account: account, lo: nonce, hi: nonce + 1}
		j.needs = j.one[:]
	}
}

// wantsAll notes what the operations of j need: of each account the nonces that follow each other from the first one on, or up to the
// highest if nonces may skip.
func (j *job) wantsAll(skip bool) {
	at := make(map[string]int, len(j.op.Ops))
	j.needs = make([]need, 0, len(j.op.Ops))
	for i := range j.op.Ops {
		op := &j.op.Ops[i]
		account := debited(op.Code, op.From, op.Asset)
		if account == "" {
			continue
		}
		k, known := at[account]
		if !known {
			at[account] = len(j.needs)
			j.needs = append(j.needs, need{account: account, lo: op.Nonce, hi: op.Nonce + 1})
		} else if d := &j.needs[k]; op.Nonce == d.hi || skip && op.Nonce > d.hi {
			d.hi = op.Nonce + 1
		}
	}
}

// answer settles j with what the ledger said. What j held is free when its caller learns of it.
func (j *job) answer(out *ledger.Outcome) {
	j.done(out)
	j.call.Answer(out)
}

// fail settles j with why there is no answer.
func (j *job) fail(err error) {
	j.done(nil)
	j.call.Fail(err)
}

// done gives back what j holds beside its key, and lets go on what waits for it. out is nil if the ledger gave no answer.
func (j *job) done(out *ledger.Outcome) {
	if j.room > 0 {
		j.e.batched.give(j.scope, j.room)
		j.room = 0
	}
	j.e.wake(j.e.nonces.strike(j, out))
}

// wake has jobs look for their places again. When the workers are gone there are none.
func (e *Engine) wake(jobs []*job) {
	if len(jobs) == 0 {
		return
	}
	e.ready.put(jobs)
	select {
	case <-e.gone:
		e.sweep()
	default:
	}
}
