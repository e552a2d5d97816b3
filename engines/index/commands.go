package index

import (
	"iter"
	"time"

	"ronbox/appliance/b3"
	"ronbox/store"
)

// PutName has a key stand for a manifest.
type PutName struct {
	Key      Key
	Manifest b3.Digest
	Note     store.Event // its row of the audit chain, without details
}

// Written is what a command on names did.
type Written struct {
	Named
	Created bool // the key was not there
	commit  uint64
}

// Kind is the command's name.
func (PutName) Kind() string { return "index.put_name/1" }

// Apply refuses another manifest for a version. The manifest that stands is not written again.
func (c PutName) Apply(r store.Reader, at store.Stamp, w *store.Writes) (Written, error) {
	prev, known := names.Get(r, c.Key.text)
	if known && c.Key.Versioned() && prev.Manifest != c.Manifest {
		return Written{}, &ConflictError{Key: c.Key, Has: prev.Manifest}
	}
	stands := known && !prev.Deleted
	if stands && prev.Manifest == c.Manifest {
		return Written{Named: prev.named(c.Key), commit: at.Seq}, nil
	}
	next := nameRow{Manifest: c.Manifest, Seq: prev.Seq + 1, UpdatedMS: at.At / int64(time.Millisecond), Commit: at.Seq}
	names.Put(w, c.Key.text, next)
	w.Audit(noted(c.Note, "key", c.Key.text, "before", before(prev, stands), "after", c.Manifest.String()))
	return Written{Named: next.named(c.Key), Created: !stands, commit: at.Seq}, nil
}

// DeleteName takes a key away.
type DeleteName struct {
	Key  Key
	Note store.Event
}

// Kind is the command's name.
func (DeleteName) Kind() string { return "index.delete_name/1" }

// Apply leaves a tombstone. A key that is not there is ErrNotFound.
func (c DeleteName) Apply(r store.Reader, at store.Stamp, w *store.Writes) (Written, error) {
	prev, known := names.Get(r, c.Key.text)
	if !known || prev.Deleted {
		return Written{}, ErrNotFound
	}
	next := nameRow{Manifest: prev.Manifest, Seq: prev.Seq + 1, UpdatedMS: at.At / int64(time.Millisecond), Commit: at.Seq, Deleted: true}
	names.Put(w, c.Key.text, next)
	w.Audit(noted(c.Note, "key", c.Key.text, "before", before(prev, true), "after", ""))
	return Written{Named: next.named(c.Key), commit: at.Seq}, nil
}

// ForgetName removes the row of a key, a damaged one and a tombstone too: nothing is known of the key afterwards.
type ForgetName struct {
	Key  Key
	Note store.Event
}

// Kind is the command's name.
func (ForgetName) Kind() string { return "index.forget_name/1" }

// Apply does not read the row, which may be damaged. If the key has none, it removes the damaged rows beside its
// place: one of them may be the row of the key, under a key that the disk has changed. ErrNotFound: there is neither.
func (c ForgetName) Apply(r store.Reader, at store.Stamp, w *store.Writes) (Forgotten, error) {
	key := []byte(c.Key.text)
	out := Forgotten{commit: at.Seq}
	if r.Get(bName, key) != nil {
		out.keys = append(out.keys, c.Key.text)
	} else {
		out.keys = damagedBeside(r, key)
	}
	if len(out.keys) == 0 {
		return out, ErrNotFound
	}
	for _, k := range out.keys {
		w.Delete(bName, []byte(k))
	}
	w.Audit(noted(c.Note, "key", c.Key.text))
	return out, nil
}

// Forgotten is what a ForgetName did.
type Forgotten struct {
	keys   []string // of the rows removed
	commit uint64
}

// damagedBeside returns the keys of the rows before and after the place of a name that do not check.
func damagedBeside(r store.Reader, key []byte) (out []string) {
	for _, rows := range []iter.Seq2[[]byte, []byte]{r.RangeBack(bName, nil, key), r.Range(bName, key, nil)} {
		for k, raw := range rows {
			if _, err := store.CutSum(k, raw); err != nil {
				out = append(out, string(k))
			}
			break
		}
	}
	return out
}

// Announce takes a provider record, which was verified.
type Announce struct {
	CID  b3.Digest
	Peer [32]byte // its key
	Raw  []byte   // the signed record
	// AtMS and ExpiresMS are the record's.
	AtMS, ExpiresMS int64
	Note            store.Event
}

// Kind is the command's name.
func (Announce) Kind() string { return "index.announce/1" }

// Apply gives its commit. Of a peer it keeps the record that was signed last, of an id the MaxProviders that expire last.
func (c Announce) Apply(r store.Reader, at store.Stamp, w *store.Writes) (uint64, error) {
	k, row := provKey{c.CID, c.Peer}, provRow{Raw: c.Raw, AtMS: c.AtMS, ExpiresMS: c.ExpiresMS, Commit: at.Seq}
	others, first, least := 0, provKey{}, provRow{}
	var was *provRow
	ofCID(r, c.CID, func(has provKey, is provRow) {
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
		return 0, &RecordError{"ts", "is not later than that of the record that stands"}
	case others >= MaxProviders && least.ExpiresMS >= c.ExpiresMS:
		return 0, &RecordError{"ttl", "ends before those of all the providers that the id may have"}
	case others >= MaxProviders:
		remove(w, first, &least)
	}
	if was != nil {
		remove(w, k, was)
	}
	providers.Put(w, k, row)
	provEnds.Put(w, k.end(&row), struct{}{})
	w.Audit(noted(c.Note, "cid", c.CID.String(), "peer", string(PeerIDOf(c.Peer[:]))))
	return at.Seq, nil
}

func remove(w *store.Writes, k provKey, row *provRow) {
	providers.Delete(w, k)
	provEnds.Delete(w, k.end(row))
}

// Withdraw takes the record of a peer for an id away.
type Withdraw struct {
	CID  b3.Digest
	Peer [32]byte // its key
	Note store.Event
}

// Kind is the command's name.
func (Withdraw) Kind() string { return "index.withdraw/1" }

// Apply gives its commit. A record that is not there is ErrNotFound.
func (c Withdraw) Apply(r store.Reader, at store.Stamp, w *store.Writes) (uint64, error) {
	k := provKey{c.CID, c.Peer}
	row, known, err := recordAt(r, k)
	switch {
	case !known:
		return 0, ErrNotFound
	case err != nil:
		providers.Delete(w, k) // damaged: the row of its expiry is left to a Repair
	default:
		remove(w, k, &row)
	}
	w.Audit(noted(c.Note, "cid", c.CID.String(), "peer", string(PeerIDOf(c.Peer[:]))))
	return at.Seq, nil
}

// maxPurge is how many records one Purge removes: few enough that no other command waits for it.
const maxPurge = 500

// Purge removes records that have expired, at most Max.
type Purge struct{ Max int }

// Purged is what a Purge did.
type Purged struct {
	CIDs    []b3.Digest // of the records removed, one each
	Damaged int         // rows of expiry that were removed because they are damaged: a Repair is due
	commit  uint64
}

// Kind is the command's name.
func (Purge) Kind() string { return "index.purge/1" }

// Apply goes by the committer's time. A damaged row is removed and keeps no other from being removed.
func (c Purge) Apply(r store.Reader, at store.Stamp, w *store.Writes) (Purged, error) {
	out := Purged{commit: at.Seq}
	for key, raw := range r.Range(bProvExp, nil, endedBy(at.At)) {
		if len(out.CIDs)+out.Damaged == c.Max {
			break
		}
		w.Delete(bProvExp, append([]byte{}, key...))
		end, err := parseEnd(key, raw)
		if err != nil {
			out.Damaged++
			continue
		}
		if row, known, err := recordAt(r, end.of); known && (err != nil || end.of.end(&row) == end) {
			providers.Delete(w, end.of)
		}
		out.CIDs = append(out.CIDs, end.of.cid)
	}
	return out, nil
}

// endedBy is the first key of index/prov_exp whose records have not expired at a time, Unix ns.
func endedBy(at int64) []byte {
	return endKeyCodec.Append(nil, endKey{second: uint64(at/int64(time.Second)) + 1})
}

// before is the manifest that stood, for the audit chain.
func before(prev nameRow, stands bool) string {
	if !stands {
		return ""
	}
	return prev.Manifest.String()
}

// noted is e with details: name, value, ….
func noted(e store.Event, pairs ...string) store.Event {
	e.Detail = make(map[string]string, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		e.Detail[pairs[i]] = pairs[i+1]
	}
	return e
}
