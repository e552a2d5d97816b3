package tables

import (
	"iter"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/index/name"
	"ronbox/store"
)

// PutName sets the manifest of a key.
type PutName struct {
	Key      name.Key
	Manifest b3.Digest
	Note     store.Event // audit row, without details
	Restored bool        // the file was restored from a snapshot: see NextSeq
}

// Written is the result of a command on names.
type Written struct {
	name.Named
	Created bool // the key did not exist
	Commit  uint64
}

// Kind implements store.Command.
func (PutName) Kind() string { return "index.put_name/1" }

// Apply refuses another manifest for an existing version. It does not write a manifest that the key
// already has.
func (c PutName) Apply(r store.Reader, at store.Stamp, w *store.Writes) (Written, error) {
	prev, known := Names.Get(r, c.Key.String())
	if known && c.Key.Versioned() && prev.Manifest != c.Manifest {
		return Written{}, &name.ConflictError{Key: c.Key, Has: prev.Manifest}
	}
	stands := known && !prev.Deleted
	if stands && prev.Manifest == c.Manifest {
		return Written{Named: prev.Named(c.Key), Commit: at.Seq}, nil
	}
	next := NameRow{
		Manifest:  c.Manifest,
		Seq:       NextSeq(prev, at, c.Restored),
		UpdatedMS: at.At / int64(time.Millisecond),
		Commit:    at.Seq,
	}
	Names.Put(w, c.Key.String(), next)
	w.Audit(noted(c.Note, "key", c.Key.String(), "before", before(prev, stands), "after", c.Manifest.String()))
	return Written{Named: next.Named(c.Key), Created: !stands, Commit: at.Seq}, nil
}

// NextSeq returns the seq of the next write of a key. In a file that was restored from a snapshot
// it is at least the time in Unix ms: writes after the snapshot are lost, and their seqs, which
// other nodes have seen, must not come again.
func NextSeq(prev NameRow, at store.Stamp, restored bool) uint64 {
	if restored {
		return max(prev.Seq+1, uint64(at.At/int64(time.Millisecond)))
	}
	return prev.Seq + 1
}

// DeleteName deletes a key.
type DeleteName struct {
	Key      name.Key
	Note     store.Event
	Restored bool // as that of PutName
}

// Kind implements store.Command.
func (DeleteName) Kind() string { return "index.delete_name/1" }

// Apply writes a tombstone. It returns ErrNotFound if the key does not exist.
func (c DeleteName) Apply(r store.Reader, at store.Stamp, w *store.Writes) (Written, error) {
	prev, known := Names.Get(r, c.Key.String())
	if !known || prev.Deleted {
		return Written{}, name.ErrNotFound
	}
	next := NameRow{
		Manifest:  prev.Manifest,
		Seq:       NextSeq(prev, at, c.Restored),
		UpdatedMS: at.At / int64(time.Millisecond),
		Commit:    at.Seq,
		Deleted:   true,
	}
	Names.Put(w, c.Key.String(), next)
	w.Audit(noted(c.Note, "key", c.Key.String(), "before", before(prev, true), "after", ""))
	return Written{Named: next.Named(c.Key), Commit: at.Seq}, nil
}

// ForgetName removes the row of a key, even if it is damaged or a tombstone. The file then holds no
// trace of the key.
type ForgetName struct {
	Key  name.Key
	Note store.Event
}

// Kind implements store.Command.
func (ForgetName) Kind() string { return "index.forget_name/1" }

// Apply does not read the row, which may be damaged. If the key has no row, it removes the damaged
// neighbours of its place that have no valid key: one of them may be the row of the key, under a
// key that the disk has changed, and no other call can name it. A damaged neighbour with a valid
// key is left to a ForgetName of that key, and its error is returned. ErrNotFound: the key has
// neither.
func (c ForgetName) Apply(r store.Reader, at store.Stamp, w *store.Writes) (Forgotten, error) {
	key := []byte(c.Key.String())
	out := Forgotten{Commit: at.Seq}
	if r.Get(NameBucket, key) != nil {
		out.Keys = append(out.Keys, c.Key.String())
	} else {
		for _, bad := range damagedBeside(r, key) {
			if k, err := name.ParseKey(bad); err == nil && k.String() == bad {
				_, err := ParseName([]byte(bad), r.Get(NameBucket, []byte(bad)))
				return out, err
			}
			out.Keys = append(out.Keys, bad)
		}
	}
	if len(out.Keys) == 0 {
		return out, name.ErrNotFound
	}
	for _, k := range out.Keys {
		w.Delete(NameBucket, []byte(k))
	}
	w.Audit(noted(c.Note, "key", c.Key.String()))
	return out, nil
}

// Forgotten is the result of a ForgetName.
type Forgotten struct {
	Keys   []string // keys of the removed rows
	Commit uint64
}

// damagedBeside returns the keys of the damaged rows directly before and after the place of a name.
func damagedBeside(r store.Reader, key []byte) (out []string) {
	for _, rows := range []iter.Seq2[[]byte, []byte]{r.RangeBack(NameBucket, nil, key), r.Range(NameBucket, key, nil)} {
		for k, raw := range rows {
			if _, err := store.CutSum(k, raw); err != nil {
				out = append(out, string(k))
			}
			break
		}
	}
	return out
}

// Announce stores a verified provider record.
type Announce struct {
	CID  b3.Digest
	Peer [32]byte // public key
	Raw  []byte   // the signed record
	// AtMS and ExpiresMS are the record's.
	AtMS, ExpiresMS int64
	Note            store.Event
}

// Kind implements store.Command.
func (Announce) Kind() string { return "index.announce/1" }

// Apply returns the stamp of its commit. It keeps the record of a peer that was signed last, and
// the MaxProviders records of an id that expire last.
func (c Announce) Apply(r store.Reader, at store.Stamp, w *store.Writes) (uint64, error) {
	k, row := ProviderKey{c.CID, c.Peer}, ProviderRow{Raw: c.Raw, AtMS: c.AtMS, ExpiresMS: c.ExpiresMS, Commit: at.Seq}
	others, first, least := 0, ProviderKey{}, ProviderRow{}
	var was *ProviderRow
	OfCID(r, c.CID, func(has ProviderKey, is ProviderRow) {
		if has == k {
			was = &is
			return
		}
		if others++; others == 1 || is.ExpiresMS < least.ExpiresMS {
			first, least = has, is
		}
	}, func(error) {}) // a damaged row is overwritten, or left to a Repair
	switch {
	case was != nil && string(was.Raw) == string(c.Raw):
		return at.Seq, nil
	case was != nil && was.AtMS >= c.AtMS:
		return 0, &name.RecordError{Field: "ts", Reason: "is not later than that of the record that stands"}
	case others >= name.MaxProviders && least.ExpiresMS >= c.ExpiresMS:
		return 0, &name.RecordError{Field: "ttl", Reason: "ends before those of all the providers that the id may have"}
	case others >= name.MaxProviders:
		remove(w, first, &least)
	}
	if was != nil {
		remove(w, k, was)
	}
	Providers.Put(w, k, row)
	Expiries.Put(w, k.Expiry(&row), struct{}{})
	w.Audit(noted(c.Note, "cid", c.CID.String(), "peer", string(name.PeerIDOf(c.Peer[:]))))
	return at.Seq, nil
}

func remove(w *store.Writes, k ProviderKey, row *ProviderRow) {
	Providers.Delete(w, k)
	Expiries.Delete(w, k.Expiry(row))
}

// Withdraw removes the record of a peer for an id.
type Withdraw struct {
	CID  b3.Digest
	Peer [32]byte // public key
	Note store.Event
}

// Kind implements store.Command.
func (Withdraw) Kind() string { return "index.withdraw/1" }

// Apply returns the stamp of its commit. It returns ErrNotFound if the record does not exist.
func (c Withdraw) Apply(r store.Reader, at store.Stamp, w *store.Writes) (uint64, error) {
	k := ProviderKey{c.CID, c.Peer}
	row, known, err := recordAt(r, k)
	switch {
	case !known:
		return 0, name.ErrNotFound
	case err != nil:
		Providers.Delete(w, k) // damaged: the row of its expiry is left to a Repair
	default:
		remove(w, k, &row)
	}
	w.Audit(noted(c.Note, "cid", c.CID.String(), "peer", string(name.PeerIDOf(c.Peer[:]))))
	return at.Seq, nil
}

// MaxPurge bounds the records that one Purge removes, so that other commands do not wait for it.
const MaxPurge = 500

// Purge removes at most Max expired records.
type Purge struct{ Max int }

// Purged is the result of a Purge.
type Purged struct {
	CIDs    []b3.Digest // one per removed record
	Damaged int         // removed rows of expiry that were damaged: a Repair is due
	Commit  uint64
}

// Kind implements store.Command.
func (Purge) Kind() string { return "index.purge/1" }

// Apply uses the time of the committer. A damaged row is removed and does not stop the purge.
func (c Purge) Apply(r store.Reader, at store.Stamp, w *store.Writes) (Purged, error) {
	out := Purged{Commit: at.Seq}
	for key, raw := range r.Range(ExpiryBucket, nil, ExpiredBy(at.At)) {
		if len(out.CIDs)+out.Damaged == c.Max {
			break
		}
		w.Delete(ExpiryBucket, append([]byte{}, key...))
		end, err := ParseExpiry(key, raw)
		if err != nil {
			out.Damaged++
			continue
		}
		if row, known, err := recordAt(r, end.of); known && (err != nil || end.of.Expiry(&row) == end) {
			Providers.Delete(w, end.of)
		}
		out.CIDs = append(out.CIDs, end.of.CID)
	}
	return out, nil
}

// ExpiredBy returns the first key of index/prov_exp after the records that have expired at a time,
// in ns.
func ExpiredBy(at int64) []byte {
	return ExpiryKeys.Append(nil, ExpiryKey{second: uint64(at/int64(time.Second)) + 1})
}

// before returns the previous manifest for the audit chain, or "".
func before(prev NameRow, stands bool) string {
	if !stands {
		return ""
	}
	return prev.Manifest.String()
}

// noted returns e with details, given as pairs of name and value.
func noted(e store.Event, pairs ...string) store.Event {
	e.Detail = make(map[string]string, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		e.Detail[pairs[i]] = pairs[i+1]
	}
	return e
}
