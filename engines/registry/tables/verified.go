package tables

import "ronbox/store"

// MarkVerified stores the progress of the deep verifier.
type MarkVerified struct {
	Mark VerifyMark `cbor:"1,keyasint"`
}

// Kind returns the stable name of the command.
func (MarkVerified) Kind() string { return "registry.mark_verified/1" }

// Apply replaces the row.
func (c MarkVerified) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	MetaVerified.Put(w, KeyVerified, c.Mark)
	return struct{}{}, nil
}
