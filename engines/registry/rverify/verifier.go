package rverify

import (
	"context"
	"encoding/binary"
	"errors"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/record"
)

// State is a verified place in a log, with the state needed to check the next version.
type State struct {
	Head     record.Head // the zero Head before genesis
	Origin   string
	Items    record.Items
	Signers  *record.SignerSet // in force
	Epochs   []Epoch           // all so far
	AuditSeq uint64            // the last audit record verified
	AuditB3  b3.Digest
}

// Epoch is one signer set of the log's history.
type Epoch struct {
	Version, Epoch uint64
	SignerSetB3    b3.Digest
}

// Verifier checks a log version by version and keeps its place between steps.
type Verifier struct {
	o       Options
	at      State
	said    checkpoint.Retention // of a pruned log: the statement of its horizon
	due     []*record.Artifact   // entries of verified versions whose audit records are not verified yet, ascending
	report  Report
	problem *Problem

	followed bool // the log has no audit chain
}

// New returns a Verifier at the beginning of a log.
func New(o Options) *Verifier { return Resume(o, State{}) }

// Resume continues from a state, which it trusts. Pass only a State of a Verifier, or one that
// follows from a trusted checkpoint.
func Resume(o Options, s State) *Verifier {
	return &Verifier{o: o, at: s, report: Report{Head: s.Head}}
}

// State returns the place reached. The result is false after a fault, or if a step stopped halfway
// through the audit records.
func (v *Verifier) State() (State, bool) { return v.at, v.problem == nil && len(v.due) == 0 }

// Problem returns the fault, or nil.
func (v *Verifier) Problem() *Problem { return v.problem }

// Report returns the result so far.
func (v *Verifier) Report() Report {
	r := v.report
	r.Problem = v.problem
	if v.followed {
		r.Profile = ProfileFollowed
	}
	return r
}

// auditPerVersion bounds the audit records of a step by its versions.
const auditPerVersion = 64

// Step checks up to n more versions, and up to 64 n audit records, of the log that r reads. It
// reports whether there is more to check before HEAD; the step that reaches HEAD has compared it.
// The error is a *Problem if the log is bad, and every later call returns it. Otherwise it is the
// cause of ctx, and the same step may be tried again.
func (v *Verifier) Step(ctx context.Context, r LogReader, n int) (more bool, err error) {
	if v.problem != nil {
		return false, v.problem
	}
	more, err = v.step(ctx, r, max(n, 1))
	more = more && err == nil
	v.report.OK = !more
	return more, v.note(err)
}

// Extend checks the versions up to and including to. It checks no audit records and no end of the
// log. The error is a *Problem if a version is bad, and every later call returns it. Otherwise it
// is the cause of ctx.
func (v *Verifier) Extend(ctx context.Context, r VersionReader, to uint64) error {
	for v.problem == nil && v.at.Head.Version < to {
		if err := v.note(v.versions(ctx, r, to)); err != nil {
			return err
		}
		v.due = nil
	}
	if v.problem != nil {
		return v.problem
	}
	return nil
}

// note records err if it is a *Problem. Any other error leaves the log unverified.
func (v *Verifier) note(err error) error {
	v.report.OK = v.report.OK && err == nil
	errors.As(err, &v.problem)
	return err
}

func (v *Verifier) step(ctx context.Context, r LogReader, n int) (more bool, err error) {
	v.followed = r.Followed()
	head, err := r.Head()
	if err != nil {
		return false, problemf(KindIncomplete, 0, "HEAD: %v", err)
	}
	if head.Version < v.at.Head.Version {
		return false, problemf(KindChain, head.Version, "HEAD fell back from version %d", v.at.Head.Version)
	}
	h, err := r.Horizon()
	if err != nil {
		return false, problemf(KindIncomplete, 0, "where the log begins: %v", err)
	}
	// at the beginning, and after more was pruned
	if h != nil && (v.at.Head.Version < h.Min || v.at.AuditSeq < h.Audit) {
		if err := v.begin(ctx, r, h); err != nil {
			return false, err
		}
	}
	budget := n * auditPerVersion
	if len(v.due) == 0 && v.at.Head.Version < head.Version {
		if err := v.versions(ctx, r, min(head.Version, v.at.Head.Version+uint64(n))); err != nil {
			return false, err
		}
	}
	if v.followed {
		v.due = nil
	}
	if done, err := v.catchUp(ctx, r, &budget); !done || err != nil {
		return true, err
	}
	if v.o.Progress != nil {
		v.o.Progress(v.at.Head.Version, head.Version)
	}
	if v.at.Head.Version < head.Version {
		return true, nil
	}
	if done, err := v.tail(ctx, r, &budget); !done || err != nil {
		return true, err
	}
	return false, v.ends(r, head)
}

// ends compares the verified place with the end of the log.
func (v *Verifier) ends(r LogReader, head record.Head) error {
	switch {
	case head != v.at.Head:
		return problemf(KindChain, head.Version, "HEAD is %+v, but the log ends with %+v", head, v.at.Head)
	case head.Version == 0 && !v.o.Genesis.IsZero():
		return problemf(KindIncomplete, 0, "the log is empty: genesis %s is missing", v.o.Genesis)
	}
	if raw, err := r.Entry(head.Version + 1); len(raw) > 0 || err != nil && !errors.Is(err, ErrMissing) {
		return problemf(KindChain, head.Version+1, "there is an entry beyond HEAD")
	}
	if raw, err := r.Payload(head.Version + 1); len(raw) > 0 || err != nil && !errors.Is(err, ErrMissing) {
		return problemf(KindChain, head.Version+1, "there is a payload beyond HEAD")
	}
	return v.epochs(r)
}

// epochs compares the stored signer sets with those that the payloads installed.
func (v *Verifier) epochs(r LogReader) error {
	i := 0
	for epoch, raw := range r.Epochs() {
		if i == len(v.at.Epochs) {
			return problemf(KindChain, 0, "epoch %d was installed by no version", epoch)
		}
		want := v.at.Epochs[i]
		if epoch != want.Epoch || len(raw) < 8 || binary.BigEndian.Uint64(raw) != want.Version ||
			b3.Sum(raw[8:]) != want.SignerSetB3 {
			return problemf(KindChain, want.Version, "epoch %d is stored otherwise than version %d installed it", epoch,
				want.Version)
		}
		i++
	}
	if i < len(v.at.Epochs) {
		return problemf(KindIncomplete, v.at.Epochs[i].Version, "epoch %d is missing", v.at.Epochs[i].Epoch)
	}
	return nil
}
