package tables

import (
	"ronbox/appliance/b3"
	"ronbox/store"
)

// repairSlice bounds the rows that one view of a repair walks, to keep views short.
const repairSlice = 2000

// Repair repairs suspect rows of provider records and of their expiry. Each row is checked again: a
// damaged row is removed, since its provider announces again; a missing row of expiry is added; a
// row of expiry without its record is removed.
type Repair struct {
	Records, Ends [][]byte // keys of suspect rows, at most MaxPurge each
}

// Repaired is the result of a Repair.
type Repaired struct {
	Removed, Added int         // number of rows
	CIDs           []b3.Digest // ids of the removed records
	Commit         uint64
}

// Kind implements store.Command.
func (Repair) Kind() string { return "index.repair/1" }

// Apply depends on the rows alone.
func (c Repair) Apply(r store.Reader, at store.Stamp, w *store.Writes) (Repaired, error) {
	out := Repaired{Commit: at.Seq}
	for _, key := range c.Records {
		raw := r.Get(ProviderBucket, key)
		if raw == nil {
			continue
		}
		k, row, err := ParseProvider(key, raw)
		if err != nil {
			w.Delete(ProviderBucket, key)
			out.Removed++
			if k, err := ProviderKeys.Decode(key); err == nil {
				out.CIDs = append(out.CIDs, k.CID)
			}
			continue
		}
		out.Added += addEnd(r, w, k.Expiry(&row))
	}
	for _, key := range c.Ends {
		if raw := r.Get(ExpiryBucket, key); raw != nil && !soundEnd(r, key, raw) {
			w.Delete(ExpiryBucket, key)
			out.Removed++
		}
	}
	return out, nil
}

// addEnd writes a row of expiry if it is missing or damaged. It returns the number of rows written.
func addEnd(r store.Reader, w *store.Writes, end ExpiryKey) int {
	key := ExpiryKeys.Append(nil, end)
	if raw := r.Get(ExpiryBucket, key); raw != nil {
		if _, err := ParseExpiry(key, raw); err == nil {
			return 0
		}
	}
	Expiries.Put(w, end, struct{}{})
	return 1
}

// soundEnd reports whether a raw row of expiry is valid and has its record.
func soundEnd(r store.Reader, key, raw []byte) bool {
	end, err := ParseExpiry(key, raw)
	return err == nil && Expires(r, end)
}

// SuspectRecords walks records from a key on. It returns suspect rows and the key at which to
// continue, nil at the end.
func SuspectRecords(r store.Reader, from []byte) (next []byte, found Repair) {
	rows := 0
	for key, raw := range r.Range(ProviderBucket, from, nil) {
		if rows == repairSlice || len(found.Records) == MaxPurge {
			return append([]byte{}, key...), found
		}
		rows++
		k, row, err := ParseProvider(key, raw)
		if err == nil {
			end := ExpiryKeys.Append(nil, k.Expiry(&row))
			if raw := r.Get(ExpiryBucket, end); raw != nil {
				_, err = ParseExpiry(end, raw)
			} else {
				err = ErrLength
			}
		}
		if err != nil {
			found.Records = append(found.Records, append([]byte{}, key...))
		}
	}
	return nil, found
}

// SuspectEnds is like SuspectRecords for rows of expiry.
func SuspectEnds(r store.Reader, from []byte) (next []byte, found Repair) {
	rows := 0
	for key, raw := range r.Range(ExpiryBucket, from, nil) {
		if rows == repairSlice || len(found.Ends) == MaxPurge {
			return append([]byte{}, key...), found
		}
		rows++
		if !soundEnd(r, key, raw) {
			found.Ends = append(found.Ends, append([]byte{}, key...))
		}
	}
	return nil, found
}
