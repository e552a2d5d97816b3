package registry

import (
	"context"
	"fmt"

	"ronbox/engines/registry/record"
	"ronbox/store"
)

// itemsAfter gives the set that a payload makes of its base, which must be the one it names, and checks it against the
// payload. The result is kept under the payload's digest: the chain below it leaves no other.
func (e *Engine) itemsAfter(p *record.Payload, base record.Base) (record.Items, error) {
	if items, ok := e.cache.Load().items(p.B3()); ok {
		return items, nil
	}
	items, err := p.Check(base)
	if err != nil {
		return record.Items{}, err
	}
	e.cache.Load().putItems(p, items)
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

// cacheEvery: a long replay leaves a set in the cache each time it passes such a version.
const cacheEvery = 64

// materialise gives the items of version v: of HEAD at once, else from the nearest full or cached set at or below it, with
// the deltas above that replayed.
func (e *Engine) materialise(ctx context.Context, v uint64) (record.Items, error) {
	if head := e.Head(); head.Head.Version == v {
		return head.Items, nil
	}
	base, items, err := e.nearest(ctx, v)
	if err != nil {
		return record.Items{}, err
	}
	for n := base + 1; n <= v; n++ {
		p, err := e.payloadAt(ctx, n)
		if err != nil {
			return record.Items{}, err
		}
		if items, err = items.Apply(p.Put, p.Remove); err != nil {
			return record.Items{}, fmt.Errorf("items of version %d: %w", n, err)
		}
		if items.Root() != p.ItemsRoot {
			return record.Items{}, fmt.Errorf("items of version %d: root %s, signed %s: %w", n, items.Root(), p.ItemsRoot, store.ErrCorrupt)
		}
		if n == v || n%cacheEvery == 0 {
			e.cache.Load().putItems(p, items)
		}
	}
	return items, nil
}

// nearest finds the highest version at or below v whose items are known without replay.
func (e *Engine) nearest(ctx context.Context, v uint64) (uint64, record.Items, error) {
	for n := v; n > 0; n-- {
		p, err := e.payloadAt(ctx, n)
		if err != nil {
			return 0, record.Items{}, err
		}
		if items, ok := e.cache.Load().items(p.B3()); ok {
			return n, items, nil
		}
		if p.Mode == record.ModeFull {
			items, err := record.NewItems(p.Put)
			if err == nil {
				e.cache.Load().putItems(p, items)
			}
			return n, items, err
		}
	}
	return 0, record.Items{}, nil
}
