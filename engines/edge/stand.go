package edge

import (
	"context"
	"errors"
	"fmt"
)

// Stand makes reads answer from the file and the folders of a member that does not lead: Asset for
// an object by its hash, Site, and the tiles and the list of packs. Other nodes write the file. The
// caller repeats Stand after the file has changed, and calls Recover when the node leads, but never
// both at once. Reads may run meanwhile. Until Recover nothing is fetched, written or verified: a
// pack with an unknown digest stays PackVerifying, and a file that replaces it waits.
func (e *Engine) Stand(ctx context.Context) error {
	if !e.stands {
		if err := errors.Join(e.hot.Open(), e.manifests.cache.Open()); err != nil {
			return fmt.Errorf("read the copy of the edge: %w", err)
		}
		e.stands = true
	}
	e.epoch.Add(1) // any row may have changed
	return e.packs.Stand(ctx)
}

// Stand opens the packs of the folder without tasks and without a write, as on a member that does
// not lead. A bad row of digests counts as none. The caller may repeat it, and calls Recover when
// the node leads, but never both at once.
func (s *PackSet) Stand(ctx context.Context) error {
	if !s.stands {
		if err := s.openCaches(); err != nil {
			return fmt.Errorf("read the packs: %w", err)
		}
		s.stands = true
	}
	if rows, err := s.readRows(ctx); err == nil {
		s.update(func(next *generation) { next.rows = rows })
	}
	_ = s.scan(false) // scan logs its error
	for ctx.Err() == nil {
		g := s.current.Load()
		id := g.unopened()
		if id == "" {
			return nil
		}
		s.open(ctx, g.packs[id])
	}
	return context.Cause(ctx)
}
