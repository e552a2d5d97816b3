package ledger

import (
	"hash/maphash"
	"math/bits"
)

// Mark stands for the balance of an account in an asset, in the memory of this process only. Balances may share a mark: a change of one is
// then taken for a change of the other too, which costs a reader of caches a miss.
type Mark uint16

// Marks is how many marks there are.
const Marks = 1 << 16

// MaxTouched bounds the marks of one event, so that the 1,024 events of the bus take 16 MiB at most, whatever was committed. The largest batch
// over HTTP, of 4,096 ops, stays within it.
const MaxTouched = 8192

// markSeed keeps marks from being guessed.
var markSeed = maphash.MakeSeed()

// MarkOf is the mark of an account in an asset.
func MarkOf(account, asset string) Mark {
	return Mark(maphash.String(markSeed, account) ^ bits.RotateLeft64(maphash.String(markSeed, asset), 7))
}

// touch notes what all shares may have changed.
func (ev *Committed) touch(shares []*share) {
	n := 0
	for _, s := range shares {
		n += len(s.touched)
	}
	switch {
	case n > MaxTouched:
		ev.All = true
	case len(shares) == 1:
		ev.Touched = shares[0].touched
	default:
		ev.Touched = make([]Mark, 0, n)
		for _, s := range shares {
			ev.Touched = append(ev.Touched, s.touched...)
		}
	}
}
