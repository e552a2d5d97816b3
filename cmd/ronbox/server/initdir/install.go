package initdir

import (
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"ronbox/appliance/systemd"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/upkeep"
)

// keys returns the keys of the configuration that init writes for every node, with their values.
func (o Options) keys(cfg *config.Config) map[string]string {
	set := map[string]string{
		"store.snapshot_every": "1d",
		"wallet.assets":        strings.Join(cfg.Wallet.Assets, ","),
	}
	if o.NoBackup {
		set["store.snapshot_every"] = "0s"
	}
	if dir := systemd.BackupDir; packaged(cfg) && cfg.Store.SnapshotDir == "" && mayWrite(dir) {
		set["store.snapshot_dir"] = dir
	}
	for _, name := range config.ServiceNames() {
		if o.Services != nil && !slices.Contains(o.Services, name) {
			set[name+".enabled"] = "false"
		}
	}
	if cfg.Registry.Origin != "" {
		set["registry.origin"] = cfg.Registry.Origin
	}
	if follow := cfg.Registry.Follow; follow.URL != "" {
		set["registry.follow.url"], set["registry.follow.genesis"] = follow.URL, follow.Genesis
		if cfg.Fleet.CAFile != "" {
			set["fleet.ca_file"] = cfg.Fleet.CAFile
		}
		if nets := cfg.Fleet.AllowPrivate; len(nets) > 0 { // the hub may be in one of them
			set["fleet.allow_private"] = strings.Join(nets, ",")
		}
	}
	return set
}

// packaged reports whether the node has the data directory of the packages. Only such a node takes
// the folder and the units that a package has installed.
func packaged(cfg *config.Config) bool { return cfg.Node.DataDir == config.Default().Node.DataDir }

// mayWrite reports whether dir is a folder that the process may write.
func mayWrite(dir string) bool {
	st, err := os.Stat(dir)
	return err == nil && st.IsDir() && upkeep.CheckSnapshotDir(dir) == nil
}

// keepListener adds the address of cfg and its protection to set, because the service does not have
// the environment variables of this process.
func keepListener(set map[string]string, cfg *config.Config) {
	if bind := cfg.Server.Bind; bind != config.Default().Server.Bind {
		set["server.bind"] = bind
	}
	if cfg.Server.Plaintext {
		set["server.plaintext"] = "true"
	}
	if cfg.TLS.Enabled {
		set["tls.enabled"] = "true"
		set["tls.cert_path"], set["tls.key_path"] = cfg.TLS.CertPath, cfg.TLS.KeyPath
	}
}

// installOf describes a service of this binary and directory. For root the service has its own
// user, for any other user it runs as that user.
func installOf(cfg *config.Config) (systemd.Install, error) {
	binary, err := os.Executable()
	if err != nil {
		return systemd.Install{}, err
	}
	dir, err := filepath.Abs(cfg.Node.DataDir)
	if err != nil {
		return systemd.Install{}, err
	}
	// the directory itself may not exist yet
	if real, err := filepath.EvalSymlinks(filepath.Dir(dir)); err == nil {
		dir = filepath.Join(real, filepath.Base(dir))
	}
	i := systemd.Install{
		Binary:  binary,
		DataDir: dir,
		Bind:    cfg.Server.Bind,
		Socket:  cfg.SocketPath(),
		User:    systemd.SystemUser,
		Sudo:    os.Getenv("SUDO_UID") != "",
	}
	if os.Getuid() == 0 {
		return i, nil
	}
	self, err := user.Current()
	if err != nil {
		return systemd.Install{}, err
	}
	i.User, i.Sudo = self.Username, true
	return i, nil
}

// writeUnits writes the unit files into the directory, for an administrator to install.
func writeUnits(cfg *config.Config, i systemd.Install) error {
	for _, f := range i.Files() {
		if err := os.WriteFile(cfg.Path(f.Name), []byte(f.Text), 0o600); err != nil {
			return err
		}
	}
	return nil
}
