package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"ronbox/appliance/obs"
	"ronbox/appliance/unit"
	"ronbox/engines/ledger"
	"ronbox/engines/registry"
	"ronbox/engines/wallet"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/front"
	"ronbox/store"
)

// Config is everything an operator can set. A section belongs to the package that reads it. The tag reload of a field says what a change
// of it takes: "r" is taken in place, "b" by listening anew, "x" by a restart; on a section it is the default of its keys, and without
// one anywhere it is "x".
type Config struct {
	Node     Node                `toml:"node"`
	Server   front.Config        `toml:"server"`
	TLS      front.TLSConfig     `toml:"tls"`
	UDS      front.UDSConfig     `toml:"uds"`
	Auth     auth.Config         `toml:"auth"`
	Amnesia  store.AmnesiaConfig `toml:"amnesia"`
	Store    store.Config        `toml:"store"`
	Log      obs.LogConfig       `toml:"log"`
	Audit    store.AuditConfig   `toml:"audit"`
	OTel     obs.OTelConfig      `toml:"otel"`
	Metrics  obs.MetricsConfig   `toml:"metrics"`
	Registry registry.Config     `toml:"registry"`
	Wallet   wallet.Config       `toml:"wallet"`
	Ledger   ledger.Config       `toml:"ledger"`
}

// Node is the section [node].
type Node struct {
	DataDir    string        `toml:"data_dir" reload:"x"`    // where the database, the secrets and the socket live
	DrainCap   unit.Duration `toml:"drain_cap" reload:"r"`   // ceiling over the drain deadlines of all services
	Predrain   unit.Duration `toml:"predrain" reload:"r"`    // serve on while unready, for balancers to notice
	AbortGrace unit.Duration `toml:"abort_grace" reload:"x"` // what an aborted task gets to return
}

// Default gives every default.
func Default() *Config {
	return &Config{
		Node: Node{
			DataDir:    "/var/lib/ronbox",
			DrainCap:   unit.Duration(5 * time.Second),
			AbortGrace: unit.Duration(250 * time.Millisecond),
		},
		Server:   front.DefaultConfig(),
		TLS:      front.DefaultTLSConfig(),
		UDS:      front.DefaultUDSConfig(),
		Auth:     auth.DefaultConfig(),
		Amnesia:  store.DefaultAmnesiaConfig(),
		Store:    store.DefaultConfig(),
		Log:      obs.DefaultLogConfig(),
		Audit:    store.DefaultAuditConfig(),
		OTel:     obs.DefaultOTelConfig(),
		Metrics:  obs.DefaultMetricsConfig(),
		Registry: registry.DefaultConfig(),
		Wallet:   wallet.DefaultConfig(),
		Ledger:   ledger.DefaultConfig(),
	}
}

// Validate joins every fault of the section.
func (n Node) Validate() error {
	var dir error
	if n.DataDir == "" {
		dir = errors.New(`data_dir = "": must name a directory`)
	}
	return errors.Join(dir,
		between("drain_cap", n.DrainCap, time.Second, 30*time.Second),
		between("predrain", n.Predrain, 0, 5*time.Minute),
		between("abort_grace", n.AbortGrace, 10*time.Millisecond, 5*time.Second),
	)
}

func between(key string, v unit.Duration, lo, hi time.Duration) error {
	if v.D() < lo || v.D() > hi {
		return fmt.Errorf("%s = %q: must be %s..%s", key, v, unit.Duration(lo), unit.Duration(hi))
	}
	return nil
}

// Path joins name to the data directory.
func (c *Config) Path(name ...string) string {
	return filepath.Join(append([]string{c.Node.DataDir}, name...)...)
}

// SocketPath is the path of the admin socket. A relative one is taken from the data directory, so that every verb finds it.
func (c *Config) SocketPath() string {
	switch {
	case c.UDS.Path == "":
		return c.Path("admin.sock")
	case filepath.IsAbs(c.UDS.Path):
		return c.UDS.Path
	default:
		return c.Path(c.UDS.Path)
	}
}
