package tables

import (
	"bytes"
	"strings"

	"ronbox/appliance/b3"
	"ronbox/appliance/unit"
	"ronbox/engines/registry/document"
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
	Items     SetHeader         // of version Min
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
func (c FollowBegin) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (TreeRow, error) {
	s := newScratch(r, w)
	first := c.First.Number
	switch {
	case s.head.Version != 0:
		return TreeRow{}, &GuardError{Op: -1, Guard: "head"}
	case len(c.Kept) == 0 || c.Kept[0].PayloadB3 != c.Genesis || c.Origin == "":
		return TreeRow{}, &GuardError{Op: -1, Guard: "genesis"}
	}
	s.begin(c.Origin, c.Genesis, first)
	MetaFollowed.Put(w, KeyFollowed, FollowRow{Genesis: c.Genesis})
	for _, t := range c.Tiles {
		s.tree.put(t.At, t.Raw)
	}
	s.tree.row = TreeRow{Size: first - 1}
	for i := range c.Kept {
		v := &c.Kept[i]
		Entries.Put(w, v.Number, v.Entry)
		Payloads.Put(w, v.Number, v.Packed)
		Epochs.Put(w, uint32(v.Epoch), EpochSet{Version: v.Number, Set: v.Set})
		DoneOutcome.Put(w, v.ID, v.Outcome())
		s.tree.row.Bytes += int64(len(v.Entry) + len(v.Packed))
		s.head = v.Head()
	}
	s.head.Version, s.head.PayloadB3 = first-1, c.First.PrevHash
	if guard := s.append(&c.First.NewVersion, c.First.Packed); guard != "" {
		return TreeRow{}, &GuardError{Op: len(c.Kept), Guard: guard}
	}
	DoneOutcome.Put(w, c.First.ID, c.First.Outcome())
	for i, raw := range c.Chunks {
		SetChunks.Put(w, SetKey{first, uint16(i + 1)}, raw)
	}
	SetHeaders.Put(w, SetKey{first, 0}, c.Items)
	Retentions.Put(w, first, c.Statement)
	MetaHead.Put(w, KeyHead, s.head)
	return s.tree.row, nil
}

// FollowFault is the reason why a follower does not believe the hub, or cannot go on.
type FollowFault struct {
	State, Detail string

	Checkpoint []byte // the checkpoint that the hub served: the evidence of a fork or a rollback
}

func (f *FollowFault) Error() string { return f.State + ": " + f.Detail }

// FollowStep is the command of the follower: verified versions of the hub's log, the hub's
// checkpoint over the last of them, or both. It adds no audit record of the registry.
type FollowStep struct {
	Head     HeadRef // HEAD before the first version
	Genesis  b3.Digest
	Origin   string
	Versions []FollowedVersion
	Note     []byte // over the last version; nil: more versions follow
	Covers   uint64 // versions under the checkpoint
	Archive  bool   // keep the checkpoint for ever

	Events []document.Update // of the versions, published after the sync
}

// FollowedVersion is a version with its packed payload.
type FollowedVersion struct {
	NewVersion
	Packed []byte // codec byte and payload
}

// Kind returns the stable name of the command.
func (FollowStep) Kind() string { return "registry.follow/1" }

// Size returns about how many bytes c writes.
func (c FollowStep) Size() int {
	n := 256 + len(c.Note)
	for i := range c.Versions {
		n += c.Versions[i].size() + len(c.Versions[i].Packed)
	}
	return n
}

// Apply appends the versions and stores the checkpoint. It returns a *GuardError if HEAD has moved,
// if a version does not continue the log, or if the checkpoint is not over the last version.
func (c FollowStep) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (TreeRow, error) {
	s := newScratch(r, w)
	if RefOf(s.head) != c.Head {
		return TreeRow{}, &GuardError{Op: -1, Guard: "head"}
	}
	for i := range c.Versions {
		if guard := s.follow(&c.Versions[i], &c); guard != "" {
			return TreeRow{}, &GuardError{Op: i, Guard: guard}
		}
	}
	if len(c.Versions) > 0 {
		MetaHead.Put(w, KeyHead, s.head)
	}
	if c.Note == nil {
		return s.tree.row, nil
	}
	if c.Covers != s.head.Version {
		return TreeRow{}, &GuardError{Op: -1, Guard: "size"}
	}
	MetaRaw.Put(w, KeyCheckpoint, c.Note)
	if c.Archive {
		Checkpoints.Put(w, c.Covers, c.Note)
	}
	return s.tree.row, nil
}

// follow appends a version of the hub. The first one begins the log.
func (s *scratch) follow(v *FollowedVersion, c *FollowStep) (guard string) {
	if s.head.Version == 0 {
		if v.PayloadB3 != c.Genesis || len(v.Set) == 0 || v.Epoch != 1 || c.Origin == "" {
			return "genesis"
		}
		s.begin(c.Origin, c.Genesis, 1)
		MetaFollowed.Put(s.w, KeyFollowed, FollowRow{Genesis: c.Genesis})
	}
	if guard := s.append(&v.NewVersion, v.Packed); guard != "" {
		return guard
	}
	DoneOutcome.Put(s.w, v.ID, v.Outcome())
	return ""
}

// begin writes the rows of reg/meta that describe the log, which is complete from version first on.
func (s *scratch) begin(origin string, genesis b3.Digest, first uint64) {
	MetaRaw.Put(s.w, KeyOrigin, []byte(origin))
	MetaRaw.Put(s.w, KeyGenesis, bytes.Clone(genesis[:]))
	MetaRaw.Put(s.w, keySchema, []byte(schemaVersion))
	MetaNumber.Put(s.w, KeyMin, first)
}

// Update returns the event of v.
func (v *FollowedVersion) Update(kind string) document.Update {
	return document.Update{
		Version: v.Number, PayloadB3: v.PayloadB3, CommittedAt: v.CommittedAt, Hash: v.Hash, Kind: kind,
	}
}

// MaxFault bounds the detail of a kept fault, in bytes.
const MaxFault = 1 << 10

// NoteFollow adds a row to the audit chain of the store: the follower has found a fault of the hub,
// which it keeps, or that it is over.
type NoteFollow struct {
	Note  store.Event
	Fault *FollowFault // nil: it is over
}

// Kind returns the stable name of the command.
func (NoteFollow) Kind() string { return "registry.note_follow/1" }

// Apply adds the row, and keeps or deletes the fault.
func (c NoteFollow) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	if c.Fault != nil {
		detail := strings.ToValidUTF8(unit.Clip(c.Fault.Detail, MaxFault), "?") // it may quote the hub
		MetaFollowFault.Put(w, KeyFollowFault, faultRow{c.Fault.State, detail})
	} else {
		MetaFollowFault.Delete(w, KeyFollowFault)
	}
	w.Audit(c.Note)
	return struct{}{}, nil
}
