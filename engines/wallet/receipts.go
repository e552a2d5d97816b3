package wallet

import (
	"hash/maphash"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/cache"
	"ronbox/engines/ledger"
)

// receiptBytes bounds the answers kept for repetitions, in front of the ledger's own index: the last ten thousand or so.
const receiptBytes = 8 << 20

// receiptCost is what an entry takes beside its receipts, receiptRoom what a receipt takes as a rule, here and as text.
const (
	receiptCost = 256
	receiptRoom = 640
)

// receipts are answers that were asked for again, the least likely to be asked for a third time dropped first. An answer enters with its
// first repetition, so that the path of new requests pays for a look only.
type receipts struct {
	kept *cache.Cache[uint64, *receipt]
	seed maphash.Seed
}

type receipt struct {
	scope, key string
	print      b3.Digest
	at         int64 // Unix ns: of the record
	answer     Answer
}

func newReceipts(c *flow.Catalog) *receipts {
	return &receipts{cache.New(c, cache.Spec[uint64, *receipt]{
		Service: service, Name: "receipt_cache", Producers: []string{flow.HTTP}, Doc: "replays", Bytes: receiptBytes, Entry: receiptCost + receiptRoom,
	}), maphash.MakeSeed()}
}

// place is where the answer under a key is kept; two that share one push each other out.
func (r *receipts) place(scope, key string) uint64 {
	return maphash.Comparable(r.seed, flightKey{scope, key})
}

// replay is the answer under a key that was given for the same question, at oldest or later.
func (r *receipts) replay(scope, key string, print b3.Digest, oldest int64) (Answer, bool) {
	hit, ok := r.kept.Get(r.place(scope, key))
	if !ok || hit.scope != scope || hit.key != key || hit.print != print || hit.at <= oldest {
		return Answer{}, false
	}
	return hit.answer, true
}

// keep remembers the answer to a repetition.
func (r *receipts) keep(scope, key string, print b3.Digest, out *ledger.Outcome, a Answer) {
	at := answeredAt(out)
	if at == 0 {
		return
	}
	r.kept.Set(r.place(scope, key), &receipt{scope, key, print, at, a}, int64(receiptCost+receiptRoom*max(1, len(a.Results))))
}

// answeredAt is the time of an outcome's record, of the first of a batch; 0 if there is none.
func answeredAt(out *ledger.Outcome) int64 {
	if !out.Batch {
		return out.Receipt.At
	}
	for i := range out.Results {
		if out.Results[i].Reject == nil {
			return out.Results[i].Receipt.At
		}
	}
	return 0
}

// sawLedgerTime notes a time of the ledger.
func (e *Engine) sawLedgerTime(at int64) {
	if at > 0 {
		raise(&e.ledgerTime, uint64(at))
	}
}

// clockBehind is how far the wall clock is behind the ledger's time.
func (e *Engine) clockBehind() time.Duration {
	return time.Duration(int64(e.ledgerTime.Load()) - e.now().UnixNano())
}
