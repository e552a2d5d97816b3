package registry

import (
	"context"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/logtree"
	"ronbox/store"
)

// FollowBegin is the command that begins the log of a follower at the horizon of a pruned hub. It
// writes all that the hub has kept before version Min, and version Min with its items.
type FollowBegin struct {
	Genesis   b3.Digest
	Origin    string
	Statement []byte            // of retention
	Kept      []FollowedVersion // genesis and changes of signers
	First     FollowedVersion   // version Min
	Tiles     []Tile            // of the versions before version Min
	Items     setHeader         // of version Min
	Chunks    [][]byte
}

// Tile is a tile of the log tree.
type Tile struct {
	At  logtree.At
	Raw []byte
}

// Kind returns the stable name of the command.
func (FollowBegin) Kind() string { return "registry.follow_begin/1" }

// Size returns about how many bytes c writes.
func (c FollowBegin) Size() int {
	n := 256 + len(c.Statement) + c.First.size() + len(c.First.Packed) + int(c.Items.Bytes)
	for i := range c.Kept {
		n += c.Kept[i].size() + len(c.Kept[i].Packed)
	}
	for _, t := range c.Tiles {
		n += len(t.Raw)
	}
	return n
}

// Apply returns a *GuardError if the log has a version, or does not begin with the genesis.
func (c FollowBegin) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (treeRow, error) {
	s := newScratch(r, w)
	first := c.First.Number
	switch {
	case s.head.Version != 0:
		return treeRow{}, &GuardError{Op: -1, Guard: "head"}
	case len(c.Kept) == 0 || c.Kept[0].PayloadB3 != c.Genesis || c.Origin == "":
		return treeRow{}, &GuardError{Op: -1, Guard: "genesis"}
	}
	s.begin(c.Origin, c.Genesis, first)
	metaFollowed.Put(w, keyFollowed, followRow{Genesis: c.Genesis})
	for _, t := range c.Tiles {
		s.tree.put(t.At, t.Raw)
	}
	s.tree.row = treeRow{Size: first - 1}
	for i := range c.Kept {
		v := &c.Kept[i]
		entries.Put(w, v.Number, v.Entry)
		payloads.Put(w, v.Number, v.Packed)
		epochs.Put(w, uint32(v.Epoch), epochSet{version: v.Number, set: v.Set})
		doneOutcome.Put(w, v.ID, v.outcome())
		s.tree.row.Bytes += int64(len(v.Entry) + len(v.Packed))
		s.head = v.head()
	}
	s.head.Version, s.head.PayloadB3 = first-1, c.First.PrevHash
	if guard := s.append(&c.First.NewVersion, c.First.Packed); guard != "" {
		return treeRow{}, &GuardError{Op: len(c.Kept), Guard: guard}
	}
	doneOutcome.Put(w, c.First.ID, c.First.outcome())
	for i, raw := range c.Chunks {
		setChunks.Put(w, setKey{first, uint16(i + 1)}, raw)
	}
	setHeaders.Put(w, setKey{first, 0}, c.Items)
	retentions.Put(w, first, c.Statement)
	metaHead.Put(w, keyHead, s.head)
	return s.tree.row, nil
}

// beginHere writes the verified horizon of the hub, and makes its version Min HEAD. The error is a
// *keepError if this node failed.
func (f *follower) beginHere(ctx context.Context, b *beginning) error {
	at := b.state
	c := FollowBegin{Genesis: f.genesis, Origin: at.Origin, Statement: b.Note, Tiles: b.tree.before(b.Min - 1)}
	c.Items, c.Chunks = f.e.packSet(at.Items)
	step := FollowStep{}
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
	view := *f.e.Head()
	view.Head, view.Origin, view.Items, view.Signers = at.Head, at.Origin, at.Items, at.Signers
	view.signersB3, view.genesis, view.MinVersion, view.Expiry = at.Signers.B3(), f.genesis, b.Min, expiry
	next, begun := newState(newHeadView(view)), time.Now()
	_, err = store.Commit(ctx, f.e.store, store.Work, c, func(row treeRow) {
		f.e.publishFollowed(next, row, nil, step.events[last:], time.Since(begun))
	})
	if err != nil {
		return &keepError{err}
	}
	f.e.board.Set(service, keyHasGenesis, f.e.hasGenesis())
	f.e.log.Info("follow.begun", "hub", f.hub.URL(), "min_version", b.Min)
	return nil
}
