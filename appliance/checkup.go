package appliance

import (
	"context"
	"os"

	"ronbox/appliance/config"
	"ronbox/appliance/host"
)

// Checkup looks at the machine for a node of this configuration. With running its own port may be taken.
func Checkup(ctx context.Context, cfg *config.Config, running bool) []host.Finding {
	in := needs(cfg)
	in.Running = running
	if file, err := os.Stat(cfg.Path(DatabaseName)); err == nil {
		in.Held = file.Size()
	}
	return host.Doctor(ctx, in)
}

// needs is what a node of this configuration needs of the machine.
func needs(cfg *config.Config) host.Inputs {
	in := host.Inputs{
		DataDir: cfg.Node.DataDir, Bind: cfg.Server.Bind, MaxBytes: cfg.Store.MaxBytes.Bytes(),
		MinFree: cfg.Store.MinFree.Bytes(), MaxConns: cfg.Server.MaxConns, Amnesia: cfg.Amnesia.Enabled,
		AllowSwap: cfg.Amnesia.AllowSwap, AllowNetwork: cfg.Store.AllowNetwork,
	}
	if in.Amnesia {
		in.MaxBytes = cfg.Amnesia.MaxBytes.Bytes()
	}
	return in
}
