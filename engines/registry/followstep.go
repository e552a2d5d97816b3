package registry

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/unit"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/record"
	"ronbox/store"
)

// followRow is the row "followed" of reg/meta. It marks a copy of the log of another node, without
// that node's audit chain.
type followRow struct {
	Genesis b3.Digest `cbor:"1,keyasint"`
}

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

	events []Update // of the versions, published after the sync
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
func (c FollowStep) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (treeRow, error) {
	s := newScratch(r, w)
	if refOf(s.head) != c.Head {
		return treeRow{}, &GuardError{Op: -1, Guard: "head"}
	}
	for i := range c.Versions {
		if guard := s.follow(&c.Versions[i], &c); guard != "" {
			return treeRow{}, &GuardError{Op: i, Guard: guard}
		}
	}
	if len(c.Versions) > 0 {
		metaHead.Put(w, keyHead, s.head)
	}
	if c.Note == nil {
		return s.tree.row, nil
	}
	if c.Covers != s.head.Version {
		return treeRow{}, &GuardError{Op: -1, Guard: "size"}
	}
	metaRaw.Put(w, keyCheckpoint, c.Note)
	if c.Archive {
		checkpoints.Put(w, c.Covers, c.Note)
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
		metaFollowed.Put(s.w, keyFollowed, followRow{Genesis: c.Genesis})
	}
	if guard := s.append(&v.NewVersion, v.Packed); guard != "" {
		return guard
	}
	doneOutcome.Put(s.w, v.ID, v.outcome())
	return ""
}

// begin writes the rows of reg/meta that describe the log, which is complete from version first on.
func (s *scratch) begin(origin string, genesis b3.Digest, first uint64) {
	metaRaw.Put(s.w, keyOrigin, []byte(origin))
	metaRaw.Put(s.w, keyGenesis, bytes.Clone(genesis[:]))
	metaRaw.Put(s.w, keySchema, []byte(schemaVersion))
	metaNumber.Put(s.w, keyMin, first)
}

// followed returns a version of the hub as a step appends it. epoch is that of the set in force
// before it.
func (e *Engine) followed(entry *record.Artifact, p *record.Payload, epoch uint64) (v FollowedVersion, err error) {
	v.ID, err = parseID(entry.ProposalID)
	if err != nil {
		return v, fmt.Errorf("version %d: %w", entry.Version, err)
	}
	v.NewVersion = NewVersion{
		ID: v.ID, Number: entry.Version, Hash: entry.Hash(), PayloadB3: entry.PayloadB3, PrevHash: p.PrevHash,
		CommittedAt: entry.CommittedAt, Epoch: epoch, Entry: entry.Bytes(),
	}
	if p.SignerSet != nil {
		v.Epoch, v.Set = p.SignerSet.Epoch, p.SignerSet.Bytes()
	}
	v.Packed = e.codec.pack(p.Bytes())
	return v, nil
}

// update returns the event of v.
func (v *FollowedVersion) update(kind string) Update {
	return Update{
		Version: v.Number, PayloadB3: v.PayloadB3, CommittedAt: v.CommittedAt, Hash: v.Hash, Kind: kind,
	}
}

// publishFollowed makes a synced step visible: first the checkpoint and the state, then the events.
// It runs in the committer and must not wait.
func (e *Engine) publishFollowed(next *state, row treeRow, note *checkpoint.Signed, events []Update,
	took time.Duration) {
	signers := e.Head().Signers
	e.tree.Store(&row)
	if note != nil {
		e.latest.Store(note)
	}
	e.current.Store(next.bounded(next.view.MinVersion, e.checkpointSize()))
	for _, ev := range events {
		e.committed.Publish(ev)
		e.m.commitSeconds(took.Seconds())
	}
	e.m.updates["accepted"](len(events))
	e.m.commits(len(events))
	if signers != next.view.Signers {
		e.m.signers(next.view.Signers)
	}
}

// faultRow is the row "follow_fault" of reg/meta: a fault of the hub is not forgotten by a restart.
type faultRow struct {
	State  string `cbor:"1,keyasint"`
	Detail string `cbor:"2,keyasint"`
}

// maxFault bounds the detail of a kept fault, in bytes.
const maxFault = 1 << 10

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
		detail := strings.ToValidUTF8(unit.Clip(c.Fault.Detail, maxFault), "?") // it may quote the hub
		metaFollowFault.Put(w, keyFollowFault, faultRow{c.Fault.State, detail})
	} else {
		metaFollowFault.Delete(w, keyFollowFault)
	}
	w.Audit(c.Note)
	return struct{}{}, nil
}
