package pack

import (
	"context"

	"ronbox/appliance/flow"
)

// Bounds of tiles in memory.
const (
	maxDecoded = 10 << 20 // bytes of a tile that is decoded for a client
	maxCached  = 1 << 20  // bytes of a tile that is cached
	roomUnit   = 1 << 20
)

// room bounds the memory of large tiles, from before they are read until they are sent. A caller
// that has room never waits for anything else, and takes all that it needs at once.
type room struct {
	turn  *flow.Slots // one caller at a time takes units, so that no two wait for each other
	units *flow.Slots // each is roomUnit bytes
}

func newRoom(c *flow.Catalog) *room {
	return &room{
		turn: flow.NewSlots(c, flow.Spec{
			Service: service, Name: "tile_turn", Cap: 1, Policy: flow.WaitDeadline,
			Producers: []string{flow.HTTP}, Doc: "callers that wait for tile_room",
		}),
		units: flow.NewSlots(c, flow.Spec{
			Service: service, Name: "tile_room", Cap: maxTileRoom / roomUnit, Policy: flow.WaitDeadline,
			Producers: []string{flow.HTTP}, Doc: "MiB of tiles over 1 MiB that are read or sent at one time",
		}),
	}
}

// space is room that a caller has taken. A nil space has none.
type space struct {
	of    *room
	units int
}

// take waits until there is room for n bytes, at most for maxTileRoom, or until ctx ends. A tile
// that fits into the cache needs none, and a nil room has room for all. The caller must shrink the
// space to 0 unless take returns an error, which is the cause of ctx.
func (r *room) take(ctx context.Context, n int64) (*space, error) {
	if r == nil || n <= maxCached {
		return nil, nil
	}
	if err := r.turn.Acquire(ctx); err != nil {
		return nil, err
	}
	defer r.turn.Release()
	s := &space{of: r}
	for range min(units(n), r.units.Cap()) {
		if err := r.units.Acquire(ctx); err != nil {
			s.shrink(0)
			return nil, err
		}
		s.units++
	}
	return s, nil
}

func units(n int64) int { return int((n + roomUnit - 1) / roomUnit) }

// shrink returns all but the room for n bytes.
func (s *space) shrink(n int64) {
	for s != nil && s.units > units(n) {
		s.of.units.Release()
		s.units--
	}
}
