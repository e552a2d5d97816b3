package follow

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/unit"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/logtree"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/rverify"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// Bounds of a round.
const (
	maxAhead      = 5 * time.Minute // of the time of a checkpoint, against this clock
	followFlights = 8               // requests at a time
	followSlice   = 32              // versions read at once
	maxKept       = 32 << 20        // bytes of verified versions that are kept to be written; others are read again
)

// Round reads the checkpoint of the hub and copies the versions under it. It writes nothing before
// all of them, the checkpoint, and its consistency with the high-water mark are verified. The error
// is a *FollowFault if the hub is not to be believed, and a *keepError if this node failed.
func (f *Run) Round(ctx context.Context) error {
	if f.deps.Store.Info().Restored {
		return errors.New("the file was restored from a snapshot, and nothing is copied before accept-restore")
	}
	if err := f.deps.Keeper.Sound(); err != nil {
		return err
	}
	raw, err := f.hub.Checkpoint(ctx)
	if err != nil {
		return err
	}
	err = f.take(ctx, raw)
	if fault, bad := errors.AsType[*tables.FollowFault](err); bad {
		fault.Checkpoint = raw
	}
	return err
}

// take copies the versions under a checkpoint of the hub.
func (f *Run) take(ctx context.Context, raw []byte) error {
	tree, err := checkpoint.TreeOf(raw)
	if err != nil {
		return faultf(Unsound, "checkpoint: %v", err)
	}
	if tree.Size <= f.head().Head.Version {
		return f.renew(ctx, raw, tree.Size)
	}
	if tree.Size < f.seen.Size {
		return f.rolledBack(tree.Size)
	}
	s, err := f.judge(ctx, raw, tree)
	if err != nil {
		return err
	}
	return f.write(ctx, s)
}

func (f *Run) rolledBack(size uint64) error {
	return faultf(Rollback, "its checkpoint is of %d versions, one of %d was seen here", size, f.seen.Size)
}

// renew takes a checkpoint of size versions, all of which this node has.
func (f *Run) renew(ctx context.Context, raw []byte, size uint64) error {
	sets, err := f.sets(ctx, size)
	if err != nil {
		return err
	}
	signed, err := f.open(raw, sets)
	if err != nil {
		return err
	}
	err = f.deps.Reader.WithTree(ctx, func(t logtree.Reader) error { return f.compare(t, signed) })
	if err != nil {
		return err
	}
	if size < f.seen.Size || size < f.head().Head.Version {
		return f.rolledBack(size)
	}
	last := f.deps.Published.Latest.Load()
	if last != nil && (bytes.Equal(last.Note, signed.Note) || signed.At.Before(last.At)) {
		return nil // an older copy of the same tree, or nothing new
	}
	return f.write(ctx, &stretch{note: signed})
}

// compare checks the tree of t against a checkpoint, and against the high-water mark as far as t
// goes.
func (f *Run) compare(t logtree.Reader, signed checkpoint.Signed) error {
	root, err := t.Root(signed.Size)
	if err != nil {
		return &keepError{err}
	}
	if root != signed.Root {
		return faultf(Fork, "it has signed root %s for %d versions, those read have %s",
			signed.Root, signed.Size, root)
	}
	if f.seen.Size > signed.Size {
		return nil // a rollback
	}
	if root, err = t.Root(f.seen.Size); err != nil {
		return &keepError{err}
	}
	if f.seen.Size > 0 && root != f.seen.Root {
		return faultf(Fork, "it has signed root %s for %d versions before, and root %s now",
			f.seen.Root, f.seen.Size, root)
	}
	return nil
}

// sets returns the signer sets that the file has up to a version.
func (f *Run) sets(ctx context.Context, version uint64) (out []*record.SignerSet, err error) {
	err = f.deps.Reader.View(ctx, func(r store.Reader) error {
		out = nil
		for epoch, installed := range tables.Epochs.All(r) {
			if installed.Version > version {
				break
			}
			set, err := record.ParseSignerSet(installed.Set)
			if err != nil {
				return fmt.Errorf("signer set of epoch %d: %w", epoch, err)
			}
			out = append(out, set)
		}
		return nil
	})
	if err != nil {
		return nil, &keepError{err}
	}
	return out, nil
}

// open verifies a checkpoint under the log keys of the last set, which is the one in force at its
// size. Further lines must be signatures of earlier log keys or of witnesses that a set names.
func (f *Run) open(raw []byte, sets []*record.SignerSet) (signed checkpoint.Signed, err error) {
	return openNote(raw, sets, f.deps.Clock.Wall())
}

func openNote(raw []byte, sets []*record.SignerSet, now time.Time) (signed checkpoint.Signed, err error) {
	if len(sets) == 0 {
		return signed, faultf(Unsound, "its checkpoint is of an empty log")
	}
	inForce := sets[len(sets)-1]
	if len(inForce.LogKeys) == 0 {
		return signed, faultf(Unsound,
			"the signer set of epoch %d admits no log key, so nothing vouches for the log", inForce.Epoch)
	}
	keys, err := checkpoint.NewKeys(inForce.LogKeys)
	if err == nil {
		signed, err = keys.Open(raw)
	}
	if err != nil {
		return signed, faultf(Unsound, "checkpoint, under the log keys of epoch %d: %v", inForce.Epoch, err)
	}
	all, witnesses, err := rverify.KeysOf(sets)
	if err == nil {
		err = all.Whole(raw, witnesses)
	}
	if err != nil {
		return signed, faultf(Unsound, "checkpoint: %v", err)
	}
	switch ahead := signed.At.Sub(now); {
	case signed.At.IsZero():
		return signed, faultf(Unsound, "the checkpoint of %d versions has no time of the hub", signed.Size)
	case ahead > maxAhead:
		return signed, faultf(Unsound, "the checkpoint of %d versions was signed at %s, %s ahead of this clock",
			signed.Size, record.FormatTime(signed.At), unit.Short(ahead))
	}
	return signed, nil
}

// stretch is the verified part of the hub's log that this node does not have.
type stretch struct {
	begin *beginning        // of a pruned hub; nil: this node has the version before first
	first uint64            // version
	note  checkpoint.Signed // over the last version
	sums  []b3.Digest       // of the entries
	docs  hubDocs           // the next ones to write, as many as were kept
}

// options returns the options of a verifier that checks signatures from a version on.
func (f *Run) options(from uint64) rverify.Options {
	return rverify.Options{Genesis: f.genesis, From: from, Fan: flow.Fan, Jobs: runtime.GOMAXPROCS(0)}
}

// base returns the state at HEAD.
func (f *Run) base() rverify.State {
	head := f.head()
	return rverify.State{Head: head.Head, Origin: head.Origin, Items: head.Items, Signers: head.Signers}
}

// judgment is a stretch that is being read. It outlives a round in which the hub did not answer, so
// that a long log is read in the end although the hub is busy now and then.
type judgment struct {
	stretch
	head uint64 // HEAD when it was begun
	next uint64 // version
	v    *rverify.Verifier
	tree *leaves
	sets []*record.SignerSet // up to next
	kept int                 // bytes read
}

func (f *Run) newJudgment(ctx context.Context, head uint64) (*judgment, error) {
	sets, err := f.sets(ctx, head)
	return &judgment{
		stretch: stretch{first: head + 1, docs: hubDocs{first: head + 1}}, head: head, next: head + 1,
		v: rverify.Resume(f.options(0), f.base()), tree: f.leavesHere(ctx, head), sets: sets,
	}, err
}

// judge verifies the versions after HEAD up to the size of a checkpoint, and then the checkpoint. A
// node without a version begins at the horizon of a pruned hub.
func (f *Run) judge(ctx context.Context, raw []byte, to checkpoint.Tree) (_ *stretch, err error) {
	head := f.head().Head.Version
	j := f.begun
	if f.begun = nil; j == nil || j.head != head || j.next > to.Size {
		if j, err = f.newJudgment(ctx, head); err != nil {
			return nil, err
		}
	}
	for j.next <= to.Size {
		docs, err := fetchDocs(ctx, f.hub, j.next, min(to.Size, j.next+f.slice()-1))
		switch {
		case errors.Is(err, document.ErrPruned) && head > 0:
			return nil, f.behind(ctx, err)
		case errors.Is(err, document.ErrPruned) && j.begin == nil:
			if j, err = atHorizon(ctx, f.hub, f.options(0), to.Size, err); err != nil {
				return nil, f.changed(err)
			}
			continue
		case errors.Is(err, document.ErrPruned):
			return nil, err // more was pruned meanwhile
		case err != nil:
			f.begun = j
			return nil, err
		}
		if err := j.v.Extend(ctx, docs, docs.last()); err != nil {
			return nil, f.blame(ctx, raw, to, j.sets, err)
		}
		if err := j.add(docs, cmp.Or(f.deps.Keeper.Rule().Keep, maxKept)); err != nil {
			return nil, err
		}
	}
	if j.note, err = f.open(raw, j.sets); err != nil {
		return nil, err
	}
	if err := f.compare(logtree.Reader{Tiles: j.tree.tile}, j.note); err != nil || j.begin == nil {
		return &j.stretch, err
	}
	return &j.stretch, f.changed(j.begin.check(j.sets, j.sums))
}

// add adds verified versions, and keeps their bytes if all kept ones have at most keep.
func (j *judgment) add(docs hubDocs, keep int) error {
	for _, d := range docs.all {
		if err := j.tree.add(d.entry); err != nil {
			return &keepError{err}
		}
		j.sums = append(j.sums, b3.Sum(d.entry))
		j.kept += d.bytes()
		j.sets = append(j.sets, setOf(d.payload)...)
	}
	if j.kept <= keep {
		j.docs.all = append(j.docs.all, docs.all...)
	}
	j.next = docs.last() + 1
	return nil
}

// setOf returns the signer set that a verified payload installs, if any.
func setOf(payload []byte) []*record.SignerSet {
	if !bytes.Contains(payload, []byte(`"signer_set":`)) {
		return nil
	}
	p, err := record.ParsePayload(payload)
	if err != nil || p.SignerSet == nil {
		return nil
	}
	return []*record.SignerSet{p.SignerSet}
}

// blame returns the fault of a hub whose versions do not verify: a fork if it has signed a tree
// that does not begin with the log of this node, else bytes that are not those of its log.
func (f *Run) blame(ctx context.Context, raw []byte, to checkpoint.Tree, sets []*record.SignerSet,
	err error) error {
	problem, bad := errors.AsType[*rverify.Problem](err)
	if !bad {
		return err
	}
	head := f.head().Head.Version
	if _, unsigned := f.open(raw, sets); head == 0 || unsigned != nil {
		return faultf(Unsound, "%v", problem)
	}
	root, err := f.deps.Reader.Root(ctx, head)
	if err != nil {
		return &keepError{err}
	}
	proof, err := f.hub.Consistency(ctx, head, to.Size)
	if err == nil && tlog.CheckTree(proof, int64(to.Size), to.Root, int64(head), root) != nil {
		return faultf(Fork, "its checkpoint of %d versions does not continue the %d versions here: %v",
			to.Size, head, problem)
	}
	return faultf(Unsound, "%v", problem)
}
