package appliance

import (
	"os"
	"os/user"
	"path/filepath"

	"ronbox/appliance/config"
	"ronbox/appliance/systemd"
)

// writeUnits puts the units of this binary on this directory into it, for an administrator to copy, and names the service.
func writeUnits(cfg *config.Config) (string, error) {
	binary, err := os.Executable()
	if err != nil {
		return "", err
	}
	who, err := user.Current()
	if err != nil {
		return "", err
	}
	for _, u := range []struct{ name, text string }{
		{systemd.UnitName, systemd.Unit(binary, cfg.Node.DataDir, who.Username)},
		{systemd.HTTPSocketName, systemd.HTTPSocket(cfg.Server.Bind)},
		{systemd.AdminSocketName, systemd.AdminSocket(cfg.SocketPath(), who.Username)},
	} {
		if err := os.WriteFile(filepath.Join(cfg.Node.DataDir, u.name), []byte(u.text), 0o600); err != nil {
			return "", err
		}
	}
	return cfg.Path(systemd.UnitName), nil
}
