package wallet

import (
	"cmp"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
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
	call     *call
	op       ledger.Op
	account  string // that the first nonce is of; "" if there is none
	nonce    uint64 // the first
	weight   int    // operations
	deadline time.Time
	corrID   string
	release  func() // gives back the room of a batch; nil for none
}

// order sorts a burst, so that consecutive nonces of an account follow each other.
func (j *job) order(other *job) int {
	return cmp.Or(cmp.Compare(j.account, other.account), cmp.Compare(j.nonce, other.nonce))
}

// debits calls fn for each nonce that j uses, in order, until fn returns false.
func (j *job) debits(fn func(account string, nonce uint64) bool) {
	if j.op.Code != record.OpBatch {
		if j.account != "" {
			fn(j.account, j.nonce)
		}
		return
	}
	for i := range j.op.Ops {
		op := &j.op.Ops[i]
		if account := debited(op.Code, op.From, op.Asset); account != "" && !fn(account, op.Nonce) {
			return
		}
	}
}

// after is the nonce that follows those of j on account, which begin with nonce.
func (j *job) after(account string, nonce uint64) uint64 {
	j.debits(func(a string, n uint64) bool {
		if a == account && n == nonce {
			nonce++
		}
		return true
	})
	return nonce
}

// answer settles j with what the ledger said.
func (j *job) answer(out *ledger.Outcome) {
	j.done()
	j.call.Answer(out)
}

// fail settles j with why there is no answer.
func (j *job) fail(err error) {
	j.done()
	j.call.Fail(err)
}

// done frees what j holds beside its key.
func (j *job) done() {
	if j.release != nil {
		j.release()
		j.release = nil
	}
}
