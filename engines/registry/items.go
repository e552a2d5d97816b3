package registry

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"ronbox/engines/registry/record"
	"ronbox/store"
)

// itemsAfter gives the set that a payload makes of its base, which must be the one it names, and checks it against the
// payload. The result is kept under the payload's digest: the chain below it leaves no other.
func (e *Engine) itemsAfter(p *record.Payload, base record.Base) (record.Items, error) {
	if items, ok := e.cache.items(p.B3()); ok {
		return items, nil
	}
	items, err := p.Check(base)
	if err != nil {
		return record.Items{}, err
	}
	e.cache.putItems(p, items)
	return items, nil
}

// payloadAt reads and parses the payload of a committed version.
func (e *Engine) payloadAt(ctx context.Context, v uint64) (*record.Payload, error) {
	var packed []byte
	err := e.view(ctx, func(r store.Reader) error {
		packed, _ = payloads.Get(r, v)
		return nil
	})
	if err != nil {
		return nil, err
	}
	p, err := e.codec.payload(packed)
	if err != nil {
		return nil, fmt.Errorf("version %d: %w", v, err)
	}
	return p, nil
}

// materialise gives the items of version v: of HEAD and of the cache at once, else from the nearest set that was kept at or
// below it, with the deltas above that folded into one. The result is held against the root that was signed.
func (e *Engine) materialise(ctx context.Context, v uint64) (record.Items, error) {
	if head := e.Head(); head.Head.Version == v {
		return head.Items, nil
	}
	if v == 0 {
		return record.Items{}, nil
	}
	last, err := e.payloadAt(ctx, v)
	if err != nil {
		return record.Items{}, err
	}
	if items, ok := e.cache.items(last.B3()); ok {
		return items, nil
	}
	f, err := e.nearest(ctx, v)
	if err != nil {
		return record.Items{}, err
	}
	for n := f.version + 1; n < v; n += replaySlice {
		if err := e.replay(ctx, &f, n, min(v, n+replaySlice)); err != nil {
			if first := e.Head().MinVersion; n < first && first <= v {
				return e.materialise(ctx, v) // retention has taken what it was reading, and keeps a nearer set
			}
			return record.Items{}, err
		}
	}
	f.apply(last)
	items, err := f.items()
	if err != nil {
		return record.Items{}, fmt.Errorf("items of version %d: %w", v, err)
	}
	if items.Root() != last.ItemsRoot {
		return record.Items{}, fmt.Errorf("items of version %d: root %s, signed %s: %w", v, items.Root(), last.ItemsRoot, store.ErrCorrupt)
	}
	e.cache.putItems(last, items)
	return items, nil
}

// replaySlice is how many versions one read transaction of a replay covers.
const replaySlice = 64

// replay folds the deltas of the versions from…to-1.
func (e *Engine) replay(ctx context.Context, f *fold, from, to uint64) error {
	var packed [][]byte
	err := e.view(ctx, func(r store.Reader) error {
		packed = packed[:0]
		for _, raw := range payloads.Range(r, from, to) {
			packed = append(packed, raw)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, raw := range packed {
		p, err := e.codec.payload(raw)
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

// fold makes one delta of many, on a base.
type fold struct {
	version uint64 // reached
	base    record.Items
	put     map[string]record.Item
	gone    map[string]bool // of the base
}

func newFold(version uint64, base record.Items) fold {
	return fold{version: version, base: base, put: map[string]record.Item{}, gone: map[string]bool{}}
}

// apply adds the change of the next version.
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
