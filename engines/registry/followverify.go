package registry

import (
	"context"
	"errors"
	"time"

	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/logtree"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/rverify"
)

// PublicReport is the result of the check of a public log: the report, the checkpoint over the log,
// and the signer set in force at its size. The last two are zero if the log is bad.
type PublicReport struct {
	rverify.Report
	Checkpoint checkpoint.Signed
	Signers    *record.SignerSet
}

// VerifyPublic checks the log of another node as a follower does, from genesis to its latest
// checkpoint, and writes nothing. A fault of the log is the problem of the report. The error means
// that the log could not be read.
func VerifyPublic(ctx context.Context, log PublicLog, o rverify.Options, now time.Time) (out PublicReport, err error) {
	raw, err := log.Checkpoint(ctx)
	if err != nil {
		return out, err
	}
	to, err := checkpoint.TreeOf(raw)
	if err != nil {
		return out.bad(err), nil
	}
	v, sets := rverify.New(o), []*record.SignerSet(nil)
	tree := &leaves{stored: func(logtree.At) []byte { return nil }, made: map[logtree.At][]byte{}}
	for at := uint64(1); at <= to.Size; at += followSlice {
		docs, err := fetchDocs(ctx, log, at, min(to.Size, at+followSlice-1))
		if err != nil {
			return out, err
		}
		err = v.Extend(ctx, docs, docs.last())
		out.Report = v.Report()
		if out.Problem != nil {
			return out.bad(nil), nil
		}
		if err != nil {
			return out, err
		}
		for _, d := range docs.all {
			if err := tree.add(d.entry); err != nil {
				return out, err
			}
			sets = append(sets, setOf(d.payload)...)
		}
		if o.Progress != nil {
			o.Progress(docs.last(), to.Size)
		}
	}
	signed, err := openNote(raw, sets, now)
	if err != nil {
		return out.bad(err), nil
	}
	if problem := rverify.CheckPublic(logtree.Reader{Tiles: tree.tile}, signed, sets, o.Seen); problem != nil {
		return out.bad(problem), nil
	}
	out.OK, out.Profile = true, rverify.ProfileFollowed
	out.Checkpoint, out.Signers = signed, sets[len(sets)-1]
	return out, nil
}

// bad returns r with a fault of the checkpoint as its problem, unless it has one.
func (r PublicReport) bad(fault error) PublicReport {
	r.OK, r.Profile = false, rverify.ProfileFollowed
	problem, is := errors.AsType[*rverify.Problem](fault)
	switch {
	case fault == nil:
	case is:
		r.Problem = problem
	default:
		r.Problem = &rverify.Problem{Kind: rverify.KindCheckpoint, Detail: fault.Error()}
	}
	return r
}
