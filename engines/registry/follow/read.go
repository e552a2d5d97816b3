package follow

import (
	"context"
	"errors"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/rverify"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// maxStepBytes bounds the versions that one command writes, unless one alone has more.
const maxStepBytes = 4 << 20

// hubDoc is a version as the hub sends it.
type hubDoc struct{ entry, payload []byte }

func (d hubDoc) bytes() int { return len(d.entry) + len(d.payload) }

// hubDocs are consecutive versions from first on. They are an rverify.VersionReader.
type hubDocs struct {
	first uint64
	all   []hubDoc
}

func (h hubDocs) last() uint64 { return h.first + uint64(len(h.all)) - 1 }

func (h hubDocs) find(v uint64) (hubDoc, error) {
	if v < h.first || v-h.first >= uint64(len(h.all)) {
		return hubDoc{}, rverify.ErrMissing
	}
	return h.all[v-h.first], nil
}

// Entry returns the entry of a version.
func (h hubDocs) Entry(v uint64) ([]byte, error) {
	d, err := h.find(v)
	return d.entry, err
}

// Payload returns the payload of a version.
func (h hubDocs) Payload(v uint64) ([]byte, error) {
	d, err := h.find(v)
	return d.payload, err
}

// fetchDocs reads the versions from…to of a log, both included.
func fetchDocs(ctx context.Context, log PublicLog, from, to uint64) (docs hubDocs, err error) {
	versions := make([]uint64, to-from+1)
	for i := range versions {
		versions[i] = from + uint64(i)
	}
	docs.first = from
	docs.all, err = fetchVersions(ctx, log, versions)
	return docs, err
}

// fetchVersions reads versions of a log.
func fetchVersions(ctx context.Context, log PublicLog, versions []uint64) ([]hubDoc, error) {
	docs := make([]hubDoc, len(versions))
	err := flow.Fan(ctx, min(followFlights, len(docs)), func(ctx context.Context, leg int) (err error) {
		for i := leg; i < len(docs) && err == nil; i += followFlights {
			d := &docs[i]
			if d.entry, err = log.Entry(ctx, versions[i]); err == nil {
				d.payload, err = log.Payload(ctx, versions[i])
			}
		}
		return err
	})
	return docs, err
}

// behind returns the fault of a hub that has pruned versions which are missing here, or cause.
func (f *Run) behind(ctx context.Context, cause error) error {
	h, err := f.hub.Horizon(ctx)
	if err != nil {
		return cause
	}
	return faultf(Behind, "it keeps versions from %d on, and this node has %d: follow a node that keeps them, "+
		"or begin at the horizon in a new data directory (ronbox init --follow)", h.MinVersion, f.head().Head.Version)
}

// write moves the high-water mark to the checkpoint of a verified stretch and then appends its
// versions. A crash in between leaves a mark beyond HEAD, and the next round goes on.
func (f *Run) write(ctx context.Context, s *stretch) error {
	if f.deps.Mark.Path != "" {
		if err := f.deps.Mark.Write(s.note); err != nil {
			return &keepError{err}
		}
	}
	f.seen = s.note.Tree
	if s.begin != nil {
		if err := f.beginHere(ctx, s.begin); err != nil {
			return err
		}
	}
	v := rverify.Resume(f.options(s.note.Size+1), f.base()) // judge has checked the signatures
	for {
		step, next, err := f.step(ctx, s, v)
		if err != nil {
			return err
		}
		if err := f.commit(ctx, s, step, next); err != nil {
			return &keepError{err}
		}
		if step.Note != nil {
			return nil
		}
	}
}

// step returns the command for the next versions of a stretch, and the state after them. The last
// one has the checkpoint.
func (f *Run) step(ctx context.Context, s *stretch,
	v *rverify.Verifier) (step tables.FollowStep, next *tables.State, err error) {
	head := f.head()
	step = tables.FollowStep{Head: head.Ref(), Genesis: f.genesis}
	view := *head
	if head.Head.Version < s.note.Size {
		docs, err := f.next(ctx, s, head.Head.Version+1)
		if err != nil {
			return step, nil, err
		}
		if err := v.Extend(ctx, docs, docs.last()); err != nil {
			return step, nil, f.changed(err)
		}
		at, _ := v.State()
		step.Origin = at.Origin
		view.Head, view.Origin, view.Items, view.Signers = at.Head, at.Origin, at.Items, at.Signers
		view.SignersB3, view.GenesisB3, view.MinVersion = at.Signers.B3(), f.genesis, max(1, head.MinVersion)
		if view.Expiry, err = f.append(&step, docs, head.Head.Epoch); err != nil {
			return step, nil, err
		}
	}
	if view.Head.Version == s.note.Size {
		every := f.deps.Keeper.Rule()
		step.Note, step.Covers = s.note.Note, s.note.Size
		step.Archive = step.Covers > f.archived && (step.Covers-f.archived >= every.EveryVersions ||
			f.deps.Clock.Now().Sub(f.archivedAt) >= every.ArchiveEvery)
	}
	return step, tables.NewState(tables.NewHeadView(view)), nil
}

// changed returns the fault of a hub that sends another version than the one that was verified.
func (f *Run) changed(err error) error {
	if problem, bad := errors.AsType[*rverify.Problem](err); bad {
		return faultf(Unsound, "%v", problem)
	}
	return err
}

// append adds versions to a step. It returns the expiry of the last one.
func (f *Run) append(step *tables.FollowStep, docs hubDocs, epoch uint64) (expiry string, err error) {
	for _, d := range docs.all {
		entry, err := record.ParseEntry(d.entry)
		if err != nil {
			return "", &keepError{err}
		}
		payload, err := record.ParsePayload(d.payload)
		if err != nil {
			return "", &keepError{err}
		}
		made, err := f.followed(entry, payload, epoch)
		if err != nil {
			return "", err
		}
		step.Versions = append(step.Versions, made)
		step.Events = append(step.Events, made.Update(entry.Kind))
		epoch, expiry = made.Epoch, payload.Expiry
	}
	return expiry, nil
}

// next returns the versions of a stretch from a version on, as many as one step writes. It reads
// those that were not kept again.
func (f *Run) next(ctx context.Context, s *stretch, from uint64) (out hubDocs, err error) {
	if from > s.docs.last() {
		s.docs, err = fetchDocs(ctx, f.hub, from, min(s.note.Size, from+f.slice()-1))
		switch {
		case errors.Is(err, document.ErrPruned):
			return out, f.behind(ctx, err)
		case err != nil:
			return out, err
		}
		for i, d := range s.docs.all {
			if v := from + uint64(i); b3.Sum(d.entry) != s.sums[v-s.first] {
				return out, faultf(Unsound, "it has sent another entry of version %d before", v)
			}
		}
	}
	out = hubDocs{first: from}
	size := 0
	for v := from; v <= s.docs.last() && uint64(len(out.all)) < f.slice(); v++ {
		d, _ := s.docs.find(v)
		if size += d.bytes(); size > maxStepBytes && len(out.all) > 0 {
			break
		}
		out.all = append(out.all, d)
	}
	return out, nil
}

// commit writes a step and publishes it.
func (f *Run) commit(ctx context.Context, s *stretch, step tables.FollowStep, next *tables.State) error {
	note := &s.note
	if step.Note == nil {
		note = nil
	}
	begun := time.Now()
	_, err := store.Commit(ctx, f.deps.Store, store.Work, step, func(row tables.TreeRow) {
		f.deps.Keeper.Publish(Step{next, row, note, step.Events, time.Since(begun)})
	})
	if err != nil {
		return err
	}
	if step.Head.Version == 0 {
		f.deps.Keeper.Begun()
	}
	if step.Archive {
		f.archived, f.archivedAt = step.Covers, f.deps.Clock.Now()
	}
	if note != nil {
		f.deps.Keeper.Checkpointed(*note, step.Archive)
	}
	if len(step.Events) > 0 {
		f.deps.Log.Info("follow.copied", "hub", f.hub.URL(), "from", step.Events[0].Version,
			"version", next.View.Head.Version, "payload_b3", next.View.Head.PayloadB3.String())
	}
	return nil
}
