package appliance

import (
	"context"

	"ronbox/appliance/config"
	"ronbox/httpapi/wire"
)

// MintOffline makes a token with the keys of a stopped node, which must not run: store.ErrLocked. Whoever can read the
// node secret may mint anything.
func MintOffline(ctx context.Context, cfg *config.Config, build Build, r wire.MintRequest) (t wire.Token, err error) {
	if err := config.Validate(cfg); err != nil {
		return t, err
	}
	if cfg.Amnesia.Enabled {
		return t, errForgets
	}
	n, err := quiet(cfg, build)
	if err != nil {
		return t, err
	}
	err = n.offline(ctx, func(ctx context.Context) error {
		t, err = n.Mint(ctx, self("offline"), "", r)
		return err
	})
	return t, err
}
