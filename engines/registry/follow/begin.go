package follow

import (
	"context"
	"time"

	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// beginHere writes the verified horizon of the hub, and makes its version Min HEAD. The error is a
// *keepError if this node failed.
func (f *Run) beginHere(ctx context.Context, b *beginning) error {
	at := b.state
	c := tables.FollowBegin{Genesis: f.genesis, Origin: at.Origin, Statement: b.Note, Tiles: b.tree.before(b.Min - 1)}
	c.Items, c.Chunks = tables.PackSet(f.deps.Reader.Codec, at.Items)
	step := tables.FollowStep{}
	docs := hubDocs{}
	for _, v := range b.versions() {
		docs.all = append(docs.all, b.docs[v])
	}
	expiry, err := f.append(&step, docs, 0)
	if err != nil {
		return err
	}
	last := len(step.Versions) - 1
	c.Kept, c.First = step.Versions[:last], step.Versions[last]
	view := *f.head()
	view.Head, view.Origin, view.Items, view.Signers = at.Head, at.Origin, at.Items, at.Signers
	view.SignersB3, view.GenesisB3, view.MinVersion, view.Expiry = at.Signers.B3(), f.genesis, b.Min, expiry
	next, begun := tables.NewState(tables.NewHeadView(view)), time.Now()
	_, err = store.Commit(ctx, f.deps.Store, store.Work, c, func(row tables.TreeRow) {
		f.deps.Keeper.Publish(Step{next, row, nil, step.Events[last:], time.Since(begun)})
	})
	if err != nil {
		return &keepError{err}
	}
	f.deps.Keeper.Begun()
	f.deps.Log.Info("follow.begun", "hub", f.hub.URL(), "min_version", b.Min)
	return nil
}
