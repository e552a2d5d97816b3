package config

import (
	"cmp"
	"path/filepath"
)

// Names in the data directory, for Path.
const (
	DatabaseName = "ronbox.db"
	SecretName   = "node.key"    // root of all tokens
	TokenName    = "admin.token" // minted by init

	SignerName    = "registry/dev-signer.key" // of init --dev
	PolicyKeyName = "rewarder/dev-policy.key" // of init --dev
	LogKeyName    = "registry/log.key"        // signs checkpoints
	HighWaterName = "registry/highwater.note" // the last checkpoint signed

	PacksName     = "packs"     // default folder of map packs
	PeriodsName   = "periods"   // default folder of the files of closed periods
	EdgeName      = "edge"      // folder of fetched objects
	RewarderName  = "rewarder"  // default folder of artifact files
	SnapshotsName = "snapshots" // default folder of scheduled snapshots

	// UnfinishedName is the file that marks a directory which an init is filling, or which a killed
	// init has left. It is locked while the init runs.
	UnfinishedName = "init.unfinished"

	// StoppingName is the file that a node locks from the closing of its sockets until it has
	// closed its database, so that verbs do not wait for it as for a node that starts. One that
	// starts again does not lock it.
	StoppingName = FileName
)

// Path joins name to the data directory.
func (c *Config) Path(name ...string) string {
	return filepath.Join(append([]string{c.Node.DataDir}, name...)...)
}

// within returns path, which is relative to the data directory unless it is absolute.
func (c *Config) within(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return c.Path(path)
}

// SocketPath returns the path of the admin socket. A relative path is relative to the data
// directory, so that every verb finds it.
func (c *Config) SocketPath() string { return c.within(cmp.Or(c.UDS.Path, "admin.sock")) }

// SnapshotDir returns the folder of scheduled snapshots.
func (c *Config) SnapshotDir() string { return c.within(cmp.Or(c.Store.SnapshotDir, SnapshotsName)) }

// PacksDir returns the folder of map packs.
func (c *Config) PacksDir() string { return c.within(cmp.Or(c.Edge.PacksDir, PacksName)) }

// PeriodsDir returns the folder of the files of closed periods, and reports whether it is the one
// of the data directory, which is made if it is missing.
func (c *Config) PeriodsDir() (dir string, own bool) {
	return c.within(cmp.Or(c.Ledger.PeriodsDir, PeriodsName)), c.Ledger.PeriodsDir == ""
}

// LogKeyPath returns the file of the key that signs checkpoints, or "" in amnesia mode.
func (c *Config) LogKeyPath() string {
	return c.registryFile(c.Registry.Checkpoint.LogKeyPath, LogKeyName)
}

// HighWaterPath returns the file of the last checkpoint signed, or "" in amnesia mode.
func (c *Config) HighWaterPath() string {
	return c.registryFile(c.Registry.Checkpoint.HighwaterPath, HighWaterName)
}

// registryFile returns the configured path, or name in the data directory.
func (c *Config) registryFile(configured, name string) string {
	if c.Amnesia.Enabled {
		return ""
	}
	return cmp.Or(configured, c.Path(name))
}

// URL returns the URL of the node over TCP.
func (c *Config) URL() string {
	if c.TLS.Enabled {
		return "https://" + c.Server.Bind
	}
	return "http://" + c.Server.Bind
}
