package tables

import "ronbox/store"

// The ledger's buckets. Integers in keys are big-endian.
var (
	bJournal = &store.Bucket{Name: "ledger/journal", Append: true} // seq: record
	bBatches = &store.Bucket{Name: "ledger/batches", Append: true} // batch number: header
	bMeta    = &store.Bucket{Name: "ledger/meta"}                  // head, format, store key
	bMoved   = &store.Bucket{Name: "ledger/moved"}                 // day, token, asset: amount

	bState  = &store.Bucket{Name: "ledger/state", Class: store.Derived}              // account, asset: balance; asset 0: the account itself
	bRecent = &store.Bucket{Name: "ledger/recent", Class: store.Derived}             // the same, of rows that change often: newer than those of ledger/state
	bNames  = &store.Bucket{Name: "ledger/names", Class: store.Derived}              // kind, name: ref
	bRefs   = &store.Bucket{Name: "ledger/refs", Class: store.Derived}               // kind, ref: name
	bHolds  = &store.Bucket{Name: "ledger/holds", Class: store.Derived}              // seq: hold
	bEnds   = &store.Bucket{Name: "ledger/hold_ends", Class: store.Derived}          // expiry, seq of every open hold
	bMarks  = &store.Bucket{Name: "ledger/marks", Class: store.Derived}              // account, asset, number: seq
	bMlog   = &store.Bucket{Name: "ledger/mlog", Class: store.Derived, Append: true} // position: node of the log of batch roots
	bOnce   = &store.Bucket{Name: "ledger/once", Class: store.Derived}               // permanent ids and guards
	bFlush  = &store.Bucket{Name: "ledger/flush", Class: store.Derived}              // how far the derived rows lag

	// Idem holds the sealed runs of the idempotency index, one sub-bucket each.
	Idem = &store.Bucket{Name: "ledger/idem", Class: store.Derived, Append: true, Subs: true}
)

// Buckets lists the ledger's buckets.
func Buckets() []*store.Bucket {
	return append(append([]*store.Bucket{bJournal, bBatches, bMeta}, DerivedBuckets()...), bMoved)
}

// DerivedBuckets lists those that a rebuild makes again.
func DerivedBuckets() []*store.Bucket {
	return []*store.Bucket{bState, bRecent, bNames, bRefs, bHolds, bEnds, bMarks, bMlog, bOnce, bFlush, Idem}
}
