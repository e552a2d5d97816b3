package registry

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"ronbox/engines/registry/record"
	"ronbox/store"
)

// Bounds of the deltas that a read of an old version replays. A set is stored when the versions
// since the last stored one have more bytes than it, so that stored sets at most about double the
// log.
const (
	minSetGap = 64
	maxSetGap = 4096
	setChunk  = 256 << 10 // bytes of a row of a stored set
)

// setHeader is the first row of a stored set. It is written with the last chunk: a set without it
// does not exist.
type setHeader struct {
	Count  int    `cbor:"1,keyasint"`
	Root   string `cbor:"2,keyasint"`
	Chunks int    `cbor:"3,keyasint"`
	Bytes  int64  `cbor:"4,keyasint"` // stored bytes of all chunks
}

// setKey orders the rows of stored sets: the version, then 0 for the header and 1… for the chunks.
type setKey struct {
	Version uint64 `cbor:"1,keyasint"`
	Part    uint16 `cbor:"2,keyasint"`
}

func setKeys() store.Key[setKey] {
	return sized(10,
		func(dst []byte, k setKey) []byte {
			return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint64(dst, k.Version), k.Part)
		},
		func(b []byte) setKey { return setKey{binary.BigEndian.Uint64(b), binary.BigEndian.Uint16(b[8:])} })
}

// PutSet stores a chunk of the items of a version, and with the last chunk the header.
type PutSet struct {
	Version uint64     `cbor:"1,keyasint"`
	Part    uint16     `cbor:"2,keyasint"`
	Packed  []byte     `cbor:"3,keyasint"`
	Header  *setHeader `cbor:"4,keyasint,omitempty"`
}

// Kind returns the stable name of the command.
func (PutSet) Kind() string { return "registry.put_set/1" }

// Size returns about how many bytes c writes.
func (c PutSet) Size() int { return 128 + len(c.Packed) }

// Apply returns a *GuardError if the log does not have the version.
func (c PutSet) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	if head, _ := metaHead.Get(r, keyHead); c.Version == 0 || c.Version > head.Version {
		return struct{}{}, &GuardError{Op: -1, Guard: "version"}
	}
	setChunks.Put(w, setKey{c.Version, c.Part}, c.Packed)
	if c.Header != nil {
		setHeaders.Put(w, setKey{c.Version, 0}, *c.Header)
	}
	return struct{}{}, nil
}

// packSet returns the rows of a stored set.
func (e *Engine) packSet(items record.Items) (head setHeader, chunks [][]byte) {
	var raw []byte
	flush := func() {
		chunks = append(chunks, e.codec.pack(raw))
		raw = nil
	}
	for it := range items.All() {
		if len(raw) > 0 && len(raw)+4+len(it.Bytes) > setChunk {
			flush()
		}
		raw = it.AppendSnapshot(raw)
	}
	flush()
	head = setHeader{Count: items.Len(), Root: items.Root(), Chunks: len(chunks)}
	for _, c := range chunks {
		head.Bytes += int64(len(c))
	}
	return head, chunks
}

// keepSet stores the items of a version, one command for each chunk. It returns the stored bytes.
func (e *Engine) keepSet(ctx context.Context, version uint64, items record.Items) (int64, error) {
	head, chunks := e.packSet(items)
	for i, c := range chunks {
		put := PutSet{Version: version, Part: uint16(i + 1), Packed: c}
		if i+1 == len(chunks) {
			put.Header = &head
		}
		if _, err := store.Commit(ctx, e.store, store.Bulk, put); err != nil {
			return 0, fmt.Errorf("keep the items of version %d: %w", version, err)
		}
	}
	return head.Bytes, nil
}

// nearest returns the newest stored set at or below v, else the empty set before genesis. A damaged
// set is flagged and skipped: an older one and the versions above it yield the same items.
func (e *Engine) nearest(ctx context.Context, v uint64) (fold, error) {
	first := e.Head().MinVersion
	for at := v; ; {
		var head setHeader
		var chunks [][]byte
		err := e.view(ctx, func(r store.Reader) (err error) {
			at, head, chunks, err = keptSet(r, at)
			return err
		})
		var items record.Items
		switch {
		case err == nil && at == 0:
			return newFold(0, record.Items{}), nil
		case err == nil:
			items, err = unpackSet(e.codec, head, chunks)
		}
		switch {
		case err == nil:
			return newFold(at, items), nil
		case at <= max(first, 1) || !errors.Is(err, store.ErrCorrupt):
			return fold{}, fmt.Errorf("kept items of version %d: %w", at, err)
		}
		e.flag(fmt.Errorf("kept items of version %d: %w", at, err))
		at--
	}
}

// keptSet reads the newest complete set at or below v; version 0 means none. If a row does not
// decode, it returns an error and the version of that set.
func keptSet(r store.Reader, v uint64) (at uint64, head setHeader, chunks [][]byte, err error) {
	headers := store.CBOR[setHeader]()
	for at = keptBelow(r, v); at > 0; at = keptBelow(r, at-1) {
		key := setKeys().Append(nil, setKey{at, 0})
		raw := r.Get(bSnap, key)
		if raw == nil {
			continue // a crash has interrupted its chunks
		}
		if head, err = headers.Decode(raw); err != nil {
			return at, head, nil, rowError(bSnap, key, err)
		}
		for _, raw := range setChunks.Range(r, setKey{at, 1}, setKey{at, uint16(head.Chunks + 1)}) {
			chunks = append(chunks, raw)
		}
		return at, head, chunks, nil
	}
	return 0, head, nil, nil
}

// keptBelow returns the newest version at or below v that has a row of a set, or 0.
func keptBelow(r store.Reader, v uint64) uint64 {
	for k := range setChunks.Back(r, setKey{}, setKey{v + 1, 0}) {
		return k.Version
	}
	return 0
}

// unpackSet unpacks the chunks and checks them against the header.
func unpackSet(packs codec, head setHeader, chunks [][]byte) (record.Items, error) {
	all := make([]record.Item, 0, max(0, min(head.Count, record.MaxItems)))
	for _, c := range chunks {
		raw, err := packs.unpack(c)
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
