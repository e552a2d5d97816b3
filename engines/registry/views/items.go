package views

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"ronbox/appliance/b3"
	"ronbox/appliance/cache"
	"ronbox/appliance/flow"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// ItemsAfter returns the items after a payload on its base, which must be the one that the payload
// names. It checks them against the payload and caches them by the digest of the payload, which
// determines them.
func (rd *Reader) ItemsAfter(p *record.Payload, base record.Base) (record.Items, error) {
	if items, ok := rd.cache.items(p.B3()); ok {
		return items, nil
	}
	items, err := p.Check(base)
	if err != nil {
		return record.Items{}, err
	}
	rd.cache.putItems(p, items)
	return items, nil
}

// PayloadAt reads and parses the payload of a committed version.
func (rd *Reader) PayloadAt(ctx context.Context, v uint64) (*record.Payload, error) {
	packed, _, err := RowOf(ctx, rd, tables.Payloads, v)
	if err != nil {
		return nil, err
	}
	p, err := rd.Codec.Payload(packed)
	if err != nil {
		return nil, fmt.Errorf("version %d: %w", v, err)
	}
	return p, nil
}

// knownItems returns the items of version v if they need no replay: those of HEAD, of the empty log
// and of the cache. If known is false, last is the payload of v.
func (rd *Reader) knownItems(ctx context.Context,
	v uint64) (items record.Items, last *record.Payload, known bool, err error) {
	if head := rd.pub.Head(); head.Head.Version == v {
		return head.Items, nil, true, nil
	}
	if v == 0 {
		return items, nil, true, nil
	}
	if last, err = rd.PayloadAt(ctx, v); err != nil {
		return items, nil, false, err
	}
	items, known = rd.cache.items(last.B3())
	return items, last, known, nil
}

// Materialise returns the items of version v. It reads the nearest stored set at or below v, folds
// the deltas above it into one, and checks the result against the signed root.
func (rd *Reader) Materialise(ctx context.Context, v uint64) (record.Items, error) {
	items, last, known, err := rd.knownItems(ctx, v)
	if known || err != nil {
		return items, err
	}
	f, err := rd.nearest(ctx, v)
	if err != nil {
		return record.Items{}, err
	}
	for n := f.version + 1; n < v; n += replaySlice {
		if err := rd.replay(ctx, &f, n, min(v, n+replaySlice)); err != nil {
			if first := rd.pub.Head().MinVersion; n < first && first <= v {
				return rd.Materialise(ctx, v) // retention has removed the versions meanwhile and stored a nearer set
			}
			return record.Items{}, err
		}
	}
	f.apply(last)
	if items, err = f.items(); err != nil {
		return record.Items{}, fmt.Errorf("items of version %d: %w", v, err)
	}
	if items.Root() != last.ItemsRoot {
		return record.Items{}, fmt.Errorf("items of version %d: root %s, signed %s: %w", v, items.Root(),
			last.ItemsRoot, store.ErrCorrupt)
	}
	rd.cache.putItems(last, items)
	return items, nil
}

// replaySlice is the number of versions that one read transaction of a replay covers.
const replaySlice = 64

// replay folds the deltas of versions from up to, but not including, to.
func (rd *Reader) replay(ctx context.Context, f *fold, from, to uint64) error {
	var packed [][]byte
	err := rd.View(ctx, func(r store.Reader) error {
		packed = packed[:0]
		for _, raw := range tables.Payloads.Range(r, from, to) {
			packed = append(packed, raw)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, raw := range packed {
		p, err := rd.Codec.Payload(raw)
		if err != nil {
			return fmt.Errorf("version %d: %w", from+uint64(i), err)
		}
		if p.Version != from+uint64(i) {
			return fmt.Errorf("payload of version %d: %w", from+uint64(i), store.ErrCorrupt)
		}
		f.apply(p)
	}
	if uint64(len(packed)) != to-from {
		return fmt.Errorf("payload of version %d is missing: %w", from+uint64(len(packed)), store.ErrCorrupt)
	}
	return nil
}

// fold merges many deltas on a base into one.
type fold struct {
	version uint64 // reached
	base    record.Items
	put     map[string]record.Item
	gone    map[string]bool // of the base
}

func newFold(version uint64, base record.Items) fold {
	return fold{version: version, base: base, put: map[string]record.Item{}, gone: map[string]bool{}}
}

// apply adds the delta of the next version.
func (f *fold) apply(p *record.Payload) {
	if p.Mode == record.ModeFull {
		*f = newFold(p.Version, record.Items{})
	}
	for _, it := range p.Put {
		f.put[it.ID] = it
		delete(f.gone, it.ID)
	}
	for _, id := range p.Remove {
		delete(f.put, id)
		if _, has := f.base.Get(id); has {
			f.gone[id] = true
		}
	}
	f.version = p.Version
}

func (f *fold) items() (record.Items, error) {
	return f.base.Apply(slices.Collect(maps.Values(f.put)), slices.Collect(maps.Keys(f.gone)))
}

// cacheBytes bounds the cache of item sets and encoded versions.
const (
	cacheBytes = 64 << 20
	cacheEntry = 64 << 10 // of one entry, about
)

// versionCache caches values that follow from the log: item sets by their payload, and encoded
// versions. Values are immutable. Each carries its key, because the cache keeps only a hash of it.
type versionCache struct{ *cache.Cache[[]byte, any] }

func newVersionCache(c *flow.Catalog) versionCache {
	return versionCache{cache.New(c, cache.Spec[[]byte, any]{
		Service: tables.Service, Name: "version_cache", Producers: []string{flow.HTTP, "pipeline"},
		Doc: "old versions", Bytes: cacheBytes, Entry: cacheEntry,
	})}
}

func (c versionCache) get(key []byte) any {
	v, _ := c.Get(key)
	return v
}

type cachedItems struct {
	payload b3.Digest
	items   record.Items
}

func itemsKey(payload b3.Digest) []byte { return append([]byte("i"), payload[:]...) }

// items returns the cached set of a payload.
func (c versionCache) items(payload b3.Digest) (record.Items, bool) {
	if hit, ok := c.get(itemsKey(payload)).(cachedItems); ok && hit.payload == payload {
		return hit.items, true
	}
	return record.Items{}, false
}

// putItems caches the set of a payload.
func (c versionCache) putItems(p *record.Payload, items record.Items) {
	c.Set(itemsKey(p.B3()), cachedItems{p.B3(), items}, entryCost+itemCost*int64(items.Len())+int64(len(p.Bytes())))
}

// The cost of a cached set counts only what it does not share with the set before it: a pointer and
// the hashes above each item, and the items of its payload.
const (
	itemCost  = 8 + 2*32
	entryCost = 256
)

type docKey struct {
	version   uint64
	withItems bool
}

func (k docKey) bytes() []byte {
	b := binary.BigEndian.AppendUint64([]byte("d"), k.version)
	if k.withItems {
		return append(b, 1)
	}
	return append(b, 0)
}

type cachedDoc struct {
	key docKey
	doc document.Encoded
}

func (c versionCache) doc(k docKey) (document.Encoded, bool) {
	hit, ok := c.get(k.bytes()).(cachedDoc)
	return hit.doc, ok && hit.key == k
}

func (c versionCache) putDoc(k docKey, doc document.Encoded) {
	c.Set(k.bytes(), cachedDoc{k, doc}, int64(len(doc.JSON))+entryCost)
}
