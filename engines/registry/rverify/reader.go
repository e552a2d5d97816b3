package rverify

import (
	"errors"
	"iter"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/record"
)

// ErrMissing is what a LogReader answers for an entry or a payload that is not there.
var ErrMissing = errors.New("not in the log")

// LogReader reads one log at one moment: all its answers fit together. Bytes stay valid until the call that read them, Verify or Step,
// returns.
type LogReader interface {
	// Head is where the log ends; the zero Head is the empty log.
	Head() (record.Head, error)
	// Entry gives the bytes of an entry; ErrMissing if there is none.
	Entry(version uint64) ([]byte, error)
	// Payload gives the canonical bytes of a payload, unpacked; ErrMissing if there is none.
	Payload(version uint64) ([]byte, error)
	// Audit gives the records from…to, both included, in ascending order, as far as they are there.
	Audit(from, to uint64) iter.Seq2[uint64, []byte]
	// AuditHead names the last audit record; 0 and zero for none.
	AuditHead() (seq uint64, sum b3.Digest, err error)
	// Epochs gives all epochs in ascending order: the version that installed the signer set, 8 bytes big-endian, then the canonical set.
	Epochs() iter.Seq2[uint64, []byte]
	// Horizon is where a pruned log begins, nil for one that is whole.
	Horizon() (*Horizon, error)
}
