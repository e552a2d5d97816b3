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
