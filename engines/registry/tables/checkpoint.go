package tables

import (
	"bytes"
	"strings"

	"ronbox/engines/registry/checkpoint"
	"ronbox/store"
)

// PutCheckpoint stores a signed checkpoint as the latest one and, with Archive, in the archive.
type PutCheckpoint struct {
	Size    uint64 `cbor:"1,keyasint"`
	Note    []byte `cbor:"2,keyasint"`
	Archive bool   `cbor:"3,keyasint,omitempty"`
}

// Kind returns the stable name of the command.
func (PutCheckpoint) Kind() string { return "registry.put_checkpoint/2" }

// Apply returns the note with the cosignatures that were stored meanwhile for the same tree. It
// refuses a checkpoint beyond HEAD.
func (c PutCheckpoint) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (note []byte, err error) {
	if head, _ := MetaHead.Get(r, KeyHead); c.Size > head.Version {
		return nil, &GuardError{Op: -1, Guard: "size"}
	}
	note = c.Note
	last, _ := MetaRaw.Get(r, KeyCheckpoint)
	if tree, err := checkpoint.TreeOf(note); err == nil && bytes.HasPrefix(last, []byte(tree.Text()+"\n")) {
		kept := checkpoint.Signed{Tree: tree, Note: last}
		for line := range strings.Lines(kept.Witnessed()) {
			note = checkpoint.AddLine(note, line)
		}
	}
	MetaRaw.Put(w, KeyCheckpoint, note)
	if c.Archive {
		Checkpoints.Put(w, c.Size, note)
	}
	return note, nil
}

// AddCosignatures adds lines of witnesses to a checkpoint and archives it with them.
type AddCosignatures struct {
	Size  uint64   `cbor:"1,keyasint"`
	Text  string   `cbor:"2,keyasint"` // the cosigned text
	Lines []string `cbor:"3,keyasint"`
	Note  []byte   `cbor:"4,keyasint"` // signed by the node; used if the checkpoint is not archived yet
}

// Kind returns the stable name of the command.
func (AddCosignatures) Kind() string { return "registry.add_cosignatures/2" }

// Apply returns the note if it is the latest checkpoint too, else nil. It returns a *GuardError
// for a checkpoint beyond HEAD, or if another one is archived for the size.
func (c AddCosignatures) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (latest []byte, err error) {
	head, _ := MetaHead.Get(r, KeyHead)
	last, _ := MetaRaw.Get(r, KeyCheckpoint)
	was, archived := Checkpoints.Get(r, c.Size)
	isLast := bytes.HasPrefix(last, []byte(c.Text+"\n"))
	switch {
	case isLast: // it may have been signed again meanwhile
		was = last
	case !archived:
		was = c.Note
	}
	if !bytes.HasPrefix(was, []byte(c.Text+"\n")) || c.Size > head.Version {
		return nil, &GuardError{Op: -1, Guard: "checkpoint"}
	}
	note := was
	for _, line := range c.Lines {
		note = checkpoint.AddLine(note, line)
	}
	Checkpoints.Put(w, c.Size, note)
	if !isLast {
		return nil, nil
	}
	MetaRaw.Put(w, KeyCheckpoint, note)
	return note, nil
}
