package rverify

import (
	"context"
	"fmt"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/record"
)

// Kind says which part of the log is bad.
type Kind string

// Kinds of problems.
const (
	KindSignature  Kind = "signature"  // an approval's signature does not hold
	KindQuorum     Kind = "quorum"     // the approvals do not authorize the version
	KindChain      Kind = "chain"      // a link, a hash, or the form of a record is wrong
	KindTree       Kind = "tree"       // the descriptors do not give the signed root
	KindIncomplete Kind = "incomplete" // something is not there, or cannot be read
)

// Problem is the first thing found wrong.
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

// Report says what was checked. OK means: all of it, up to the reader's HEAD, and all good.
type Report struct {
	OK           bool        `json:"ok"`
	First        uint64      `json:"first,omitzero"` // of a pruned log: the version that it is whole from
	Head         record.Head `json:"head"`           // the last version verified
	Versions     uint64      `json:"versions"`       // verified
	Approvals    uint64      `json:"approvals"`      // whose signature was checked
	AuditRecords uint64      `json:"audit_records"`  // verified
	Problem      *Problem    `json:"problem,omitzero"`
}

// Options say what to trust and how to work.
type Options struct {
	// Genesis is the payload_b3 of version 1; zero takes the log's own.
	Genesis b3.Digest
	// From is the first version whose signatures are checked; of those before it only links, roots and forms are.
	From uint64
	// Fan runs leg(0) … leg(n-1) side by side and joins them; nil runs them in turn.
	Fan func(ctx context.Context, n int, leg func(ctx context.Context, i int) error) error
	// Jobs is how many legs work is dealt to; below 1 is 1.
	Jobs int
	// Progress, unless nil, is told after each step how many versions of how many are verified.
	Progress func(done, total uint64)
	// Seen, unless nil, is a checkpoint that was seen of the log, for VerifyWhole: the log must begin with the tree that it names.
	Seen []byte
}

// slice is how many versions Verify checks per step.
const slice = 256

// Verify checks the whole log. A bad log is told in the report; the error is ctx's alone.
func Verify(ctx context.Context, r LogReader, o Options) (Report, error) {
	return New(o).whole(ctx, r, nil)
}

// VerifyWhole is Verify and, of a log that holds, the check of its tree, of its checkpoints, and of the checkpoint that was seen.
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

// each deals n pieces of work to the legs; piece i must touch nothing that piece j touches. It returns how many hold before the first that
// does not, and the fault of that one. When ctx ends meanwhile, nothing is known to hold, and the error is its cause.
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
