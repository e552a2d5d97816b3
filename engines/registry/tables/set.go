package tables

import (
	"fmt"

	"ronbox/engines/registry/record"
	"ronbox/store"
)

// setChunk is the size of a row of a stored set, bytes.
const setChunk = 256 << 10

// PutSet stores a chunk of the items of a version, and with the last chunk the header.
type PutSet struct {
	Version uint64     `cbor:"1,keyasint"`
	Part    uint16     `cbor:"2,keyasint"`
	Packed  []byte     `cbor:"3,keyasint"`
	Header  *SetHeader `cbor:"4,keyasint,omitempty"`
}

// Kind returns the stable name of the command.
func (PutSet) Kind() string { return "registry.put_set/1" }

// Size returns about how many bytes c writes.
func (c PutSet) Size() int { return 128 + len(c.Packed) }

// Apply returns a *GuardError if the log does not have the version.
func (c PutSet) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	if head, _ := MetaHead.Get(r, KeyHead); c.Version == 0 || c.Version > head.Version {
		return struct{}{}, &GuardError{Op: -1, Guard: "version"}
	}
	SetChunks.Put(w, SetKey{c.Version, c.Part}, c.Packed)
	if c.Header != nil {
		SetHeaders.Put(w, SetKey{c.Version, 0}, *c.Header)
	}
	return struct{}{}, nil
}

// PackSet returns the rows of a stored set.
func PackSet(packs Codec, items record.Items) (head SetHeader, chunks [][]byte) {
	var raw []byte
	flush := func() {
		chunks = append(chunks, packs.Pack(raw))
		raw = nil
	}
	for it := range items.All() {
		if len(raw) > 0 && len(raw)+4+len(it.Bytes) > setChunk {
			flush()
		}
		raw = it.AppendSnapshot(raw)
	}
	flush()
	head = SetHeader{Count: items.Len(), Root: items.Root(), Chunks: len(chunks)}
	for _, c := range chunks {
		head.Bytes += int64(len(c))
	}
	return head, chunks
}

// KeptSet reads the newest complete set at or below v; version 0 means none. If a row does not
// decode, it returns an error and the version of that set.
func KeptSet(r store.Reader, v uint64) (at uint64, head SetHeader, chunks [][]byte, err error) {
	headers := store.CBOR[SetHeader]()
	for at = keptBelow(r, v); at > 0; at = keptBelow(r, at-1) {
		key := setKeys().Append(nil, SetKey{at, 0})
		raw := r.Get(SnapBucket, key)
		if raw == nil {
			continue // a crash has interrupted its chunks
		}
		if head, err = headers.Decode(raw); err != nil {
			return at, head, nil, RowError(SnapBucket, key, err)
		}
		for _, raw := range SetChunks.Range(r, SetKey{at, 1}, SetKey{at, uint16(head.Chunks + 1)}) {
			chunks = append(chunks, raw)
		}
		return at, head, chunks, nil
	}
	return 0, head, nil, nil
}

// keptBelow returns the newest version at or below v that has a row of a set, or 0.
func keptBelow(r store.Reader, v uint64) uint64 {
	for k := range SetChunks.Back(r, SetKey{}, SetKey{v + 1, 0}) {
		return k.Version
	}
	return 0
}

// UnpackSet unpacks the chunks and checks them against the header.
func UnpackSet(packs Codec, head SetHeader, chunks [][]byte) (record.Items, error) {
	all := make([]record.Item, 0, max(0, min(head.Count, record.MaxItems)))
	for _, c := range chunks {
		raw, err := packs.Unpack(c)
		if err != nil {
			return record.Items{}, err
		}
		part, err := record.ParseSnapshot(raw)
		if err != nil {
			return record.Items{}, fmt.Errorf("%w: %w", store.ErrCorrupt, err)
		}
		all = append(all, part...)
	}
	items, err := record.NewItems(all)
	if err != nil {
		return record.Items{}, fmt.Errorf("%w: %w", store.ErrCorrupt, err)
	}
	if items.Len() != head.Count || items.Root() != head.Root {
		return record.Items{}, fmt.Errorf("%w: %d items with root %s, the header says %d with %s", store.ErrCorrupt,
			items.Len(), items.Root(), head.Count, head.Root)
	}
	return items, nil
}
