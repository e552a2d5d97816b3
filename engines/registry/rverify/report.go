package rverify

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/record"
)

// Kind is the part of the log that is bad.
type Kind string

// Kinds of problems.
const (
	KindSignature  Kind = "signature"  // the signature of an approval does not verify
	KindQuorum     Kind = "quorum"     // the approvals do not authorize the version
	KindChain      Kind = "chain"      // a link, a hash, or the form of a record is wrong
	KindTree       Kind = "tree"       // the descriptors do not have the signed root
	KindIncomplete Kind = "incomplete" // a row is missing or cannot be read
)

// Problem is the first fault found.
type Problem struct {
	Kind    Kind   `json:"kind"`
	Version uint64 `json:"version,omitzero"` // 0 when it belongs to no version
	Detail  string `json:"detail"`
}

func (p *Problem) Error() string {
	if p.Version == 0 {
		return fmt.Sprintf("bad log (%s): %s", p.Kind, p.Detail)
	}
	return fmt.Sprintf("bad log (%s) at version %d: %s", p.Kind, p.Version, p.Detail)
}

func problemf(kind Kind, version uint64, format string, args ...any) error {
	return &Problem{Kind: kind, Version: version, Detail: fmt.Sprintf(format, args...)}
}

// Report is the result of a check. OK means that everything up to HEAD was checked and holds.
type Report struct {
	OK           bool        `json:"ok"`
	Profile      string      `json:"profile,omitzero"` // ProfileFollowed, or "" for a whole log
	First        uint64      `json:"first,omitzero"`   // of a pruned log: the first complete version
	Head         record.Head `json:"head"`             // the last version verified
	Versions     uint64      `json:"versions"`         // verified
	Approvals    uint64      `json:"approvals"`        // whose signature was checked
	AuditRecords uint64      `json:"audit_records"`    // verified
	Problem      *Problem    `json:"problem,omitzero"`
}

// Options configure a check.
type Options struct {
	// Genesis is the payload_b3 of version 1. Zero accepts that of the log.
	Genesis b3.Digest
	// From is the first version whose signatures are checked. Of the versions before it only links,
	// roots and forms are checked.
	From uint64
	// Fan runs leg(0) … leg(n-1) concurrently and joins them. nil runs them in turn.
	Fan func(ctx context.Context, n int, leg func(ctx context.Context, i int) error) error
	// Jobs is the number of legs. Below 1 counts as 1.
	Jobs int
	// Progress, unless nil, is called after each step with the verified and the total number of
	// versions.
	Progress func(done, total uint64)
	// Seen, unless nil, is an earlier checkpoint of the log. VerifyWhole checks that the log begins
	// with its tree.
	Seen []byte
}

// ProfileFollowed is the profile of a log without its audit chain, which is not public.
const ProfileFollowed = "followed"

// slice is the number of versions that Verify checks per step.
const slice = 256

// Verify checks the whole log. The report names a fault; the error is the cause of ctx.
func Verify(ctx context.Context, r LogReader, o Options) (Report, error) {
	return New(o).whole(ctx, r, nil)
}

// VerifyWhole is Verify and, if the log holds, the check of its tree, its checkpoints, and the
// checkpoint in Options.Seen.
func VerifyWhole(ctx context.Context, r LogReader, t TreeReader, o Options) (Report, error) {
	return New(o).whole(ctx, r, t)
}

func (v *Verifier) whole(ctx context.Context, r LogReader, t TreeReader) (Report, error) {
	err := error(nil)
	for more := true; more && err == nil; {
		more, err = v.Step(ctx, r, slice)
	}
	if err == nil && t != nil {
		err = v.note(v.verifyTree(ctx, r, t))
	}
	if v.problem != nil {
		err = nil
	}
	return v.Report(), err
}

// each runs n independent pieces of work on the legs. It returns the number of pieces before the
// first fault, and that fault. If ctx ends meanwhile, the number is 0 and the error is its cause.
func (o *Options) each(ctx context.Context, n int, piece func(i int) error) (sound int, err error) {
	jobs, faults := min(max(o.Jobs, 1), n), make([]error, n)
	leg := func(ctx context.Context, first int) error {
		for i := first; i < n; i += jobs {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			faults[i] = piece(i)
		}
		return nil
	}
	if o.Fan == nil || jobs <= 1 {
		jobs = 1
		err = leg(ctx, 0)
	} else {
		err = o.Fan(ctx, jobs, leg)
	}
	if err != nil {
		return 0, err
	}
	for i, fault := range faults {
		if fault != nil {
			return i, fault
		}
	}
	return n, nil
}

// ErrMissing is returned by a LogReader for a missing entry or payload.
var ErrMissing = errors.New("not in the log")

// VersionReader reads the versions of a log.
type VersionReader interface {
	// Entry returns the bytes of an entry, or ErrMissing.
	Entry(version uint64) ([]byte, error)
	// Payload returns the canonical bytes of a payload, unpacked, or ErrMissing.
	Payload(version uint64) ([]byte, error)
}

// LogReader reads one consistent state of a log. Bytes stay valid until the call of Verify or Step
// that read them returns.
type LogReader interface {
	// Head returns the end of the log, the zero Head for the empty log.
	Head() (record.Head, error)
	VersionReader
	// Followed reports whether the log is a copy of the public part of a log: it has no audit
	// chain.
	Followed() bool
	// Audit yields the existing records from…to, both included, in ascending order.
	Audit(from, to uint64) iter.Seq2[uint64, []byte]
	// AuditHead returns the number and hash of the last audit record, zero if there is none.
	AuditHead() (seq uint64, sum b3.Digest, err error)
	// Epochs yields all epochs in ascending order: the version that installed the signer set, 8
	// bytes big-endian, then the canonical set.
	Epochs() iter.Seq2[uint64, []byte]
	// Horizon returns where a pruned log begins, nil if the log is complete.
	Horizon() (*Horizon, error)
}
