package ledger

import (
	"ronbox/appliance/b3"
	"ronbox/engines/ledger/idem"
	"ronbox/engines/ledger/record"
)

// action is an op as a command carries it: what can be looked up or hashed before it is queued has been.
type action struct {
	op        *Op
	from, to  party  // as far as they were known and in memory
	asset     uint32 // ref; 0 was not known
	hold      uint64 // seq of the hold that the op's id names; 0: there is none
	key       idem.Key
	keyed     bool
	found     uint64 // seq of the record that the key led to; 0: none
	checked   uint64 // up to which records were looked at for the key
	principal [8]byte
	capID     [8]byte
	inner     []action // of a batch
}

// result is what became of an action.
type result struct {
	code   record.Result
	seq    uint64  // of the record: accepted, replayed; of a batch its first part
	reject *Reject // refused
	inner  []result
}

func accepted(seq uint64) result { return result{code: record.Accepted, seq: seq} }

func replay(seq uint64) result { return result{code: record.Replayed, seq: seq} }

func refused(r *Reject) result { return result{code: r.Code, reject: r} }

// posted is what became of a command.
type posted struct {
	results []result
	batch   record.Batch // No 0: nothing was written
	root    b3.Digest
	seed    uint64
}

// refusal is the error of a command that wrote nothing: it takes no stamp, and needs no sync of its own.
type refusal struct{ *posted }

func (refusal) Error() string { return "ledger: every op was refused or had been done before" }
