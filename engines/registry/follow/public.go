package follow

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
	j := &judgment{stretch: stretch{first: 1}, next: 1, v: rverify.New(o), tree: newLeaves()}
	for j.next <= to.Size {
		docs, err := fetchDocs(ctx, log, j.next, min(to.Size, j.next+followSlice-1))
		if err != nil && j.next == 1 && ctx.Err() == nil { // it may be pruned
			pruned, fault := atHorizon(ctx, log, o, to.Size, err)
			if _, bad := errors.AsType[*rverify.Problem](fault); bad {
				return out.bad(fault), nil
			}
			if fault == nil {
				j = pruned
				continue
			}
		}
		if err != nil {
			return out, err
		}
		err = j.v.Extend(ctx, docs, docs.last())
		out.Report = j.v.Report()
		if out.Problem != nil {
			return out.bad(nil), nil
		}
		if err == nil {
			err = j.add(docs, 0)
		}
		if err != nil {
			return out, err
		}
		if o.Progress != nil {
			o.Progress(docs.last(), to.Size)
		}
	}
	out.Report = j.v.Report()
	signed, err := openNote(raw, j.sets, now)
	if err != nil {
		return out.bad(err), nil
	}
	err = rverify.CheckPublic(logtree.Reader{Tiles: j.tree.tile}, signed, j.sets, o.Seen)
	if err == nil && j.begin != nil {
		err = j.begin.check(j.sets, j.sums)
	}
	if err != nil {
		return out.bad(err), nil
	}
	out.OK, out.Profile = true, rverify.ProfileFollowed
	out.Checkpoint, out.Signers = signed, j.sets[len(j.sets)-1]
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
