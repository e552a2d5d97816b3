package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"ronbox/appliance/clock"
	"ronbox/appliance/obs"
	"ronbox/appliance/unit"
	"ronbox/engines/archive"
	"ronbox/engines/cluster"
	"ronbox/engines/edge/config"
	"ronbox/engines/fleet"
	"ronbox/engines/index"
	"ronbox/engines/ledger"
	"ronbox/engines/registry"
	"ronbox/engines/rewarder"
	"ronbox/engines/wallet"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/console"
	"ronbox/httpapi/front"
	"ronbox/httpapi/scopes"
	"ronbox/store"
)

// Config holds all keys. The package that reads a section defines its type. The tag reload of a
// field states how a change is applied: "r" in place, "b" with a new socket, "x" after a restart.
// The tag of a section is the default for its keys; without any tag the default is "x".
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
	Edge     config.Config       `toml:"edge"`
	Index    index.Config        `toml:"index"`
	Rewarder rewarder.Config     `toml:"rewarder"`
	Fleet    fleet.Config        `toml:"fleet"`
	Cluster  cluster.Config      `toml:"cluster"`
	Archive  archive.Config      `toml:"archive"`
	Console  console.Config      `toml:"console"`

	// Warnings lists the keys that were set but no longer have an effect. Load fills it.
	Warnings []string `toml:"-"`
}

// Node is the section [node].
type Node struct {
	DataDir    string        `toml:"data_dir" reload:"x"`    // where the database, the secrets and the socket live
	DrainCap   unit.Duration `toml:"drain_cap" reload:"r"`   // upper bound of the drain deadlines of all services
	Predrain   unit.Duration `toml:"predrain" reload:"r"`    // time to serve while unready, so that load balancers react
	AbortGrace unit.Duration `toml:"abort_grace" reload:"x"` // time for an aborted task to return
	// the garbage collector keeps Go's heap below it if it can; 0: half of the memory that the
	// process may use
	MemoryLimit unit.Size `toml:"memory_limit" reload:"x"`

	// The wall clock may be ahead of the node's clock by ClockStep. Further ahead, it is believed
	// once it has stayed there for ClockSettle.
	ClockStep   unit.Duration `toml:"clock_step" reload:"r"`
	ClockSettle unit.Duration `toml:"clock_settle" reload:"r"`
}

// Clock returns the configuration of the node's clock.
func (n Node) Clock() clock.Config {
	return clock.Config{Step: n.ClockStep.D(), Settle: n.ClockSettle.D()}
}

// HeapBytes returns what the garbage collector keeps Go's heap below, for a process that may use so
// many bytes: 0 if it is unknown.
func (c *Config) HeapBytes(usable int64) int64 {
	if c.Node.MemoryLimit != 0 {
		return c.Node.MemoryLimit.Bytes()
	}
	if usable == 0 {
		return 0
	}
	return max(usable/2, minHeap)
}

// defaultCache is the most that CacheBytes chooses by itself.
const defaultCache = 2 << 30

// CacheBytes returns the memory for rows of the ledger in a process that may use so many bytes.
func (c *Config) CacheBytes(usable int64) int64 {
	if c.Ledger.CacheBytes != 0 {
		return c.Ledger.CacheBytes.Bytes()
	}
	return min(max(usable/4, ledger.MinCache), defaultCache)
}

// Default returns the default configuration.
func Default() *Config {
	return &Config{
		Node: Node{
			DataDir:     "/var/lib/ronbox",
			DrainCap:    unit.Duration(5 * time.Second),
			AbortGrace:  unit.Duration(250 * time.Millisecond),
			ClockStep:   unit.Duration(clock.DefaultConfig().Step),
			ClockSettle: unit.Duration(clock.DefaultConfig().Settle),
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
		Edge:     config.DefaultConfig(),
		Index:    index.DefaultConfig(),
		Rewarder: rewarder.DefaultConfig(),
		Fleet:    fleet.DefaultConfig(),
		Cluster:  cluster.DefaultConfig(),
		Archive:  archive.DefaultConfig(),
		Console:  console.DefaultConfig(),
	}
}

// Validate returns every fault of the section, joined.
func (n Node) Validate() error {
	var dir error
	if n.DataDir == "" {
		dir = errors.New(`data_dir = "": must name a directory`)
	}
	return errors.Join(dir,
		unit.Between("drain_cap", n.DrainCap, time.Second, 30*time.Second),
		unit.Between("predrain", n.Predrain, 0, 5*time.Minute),
		unit.Between("abort_grace", n.AbortGrace, 10*time.Millisecond, 5*time.Second),
		unit.Between("clock_step", n.ClockStep, time.Second, time.Hour),
		unit.Between("clock_settle", n.ClockSettle, time.Minute, 24*time.Hour),
		n.validateMemory(),
	)
}

// minHeap is the smallest node.memory_limit: below it a node would do little but collect garbage.
const minHeap = 32 << 20

func (n Node) validateMemory() error {
	if n.MemoryLimit == 0 {
		return nil
	}
	return unit.Within("memory_limit", n.MemoryLimit, minHeap, 1<<50)
}

// Validate returns every fault of cfg, joined, each a *Fault with its key.
func Validate(cfg *Config) error {
	l := &loader{cfg: cfg, all: leaves(cfg)}
	l.validate()
	return errors.Join(l.faults...)
}

// validate validates each section and the rules between sections. It adds the place to each fault.
func (l *loader) validate() {
	v := reflect.ValueOf(l.cfg).Elem()
	for i := range v.NumField() {
		section, ok := v.Field(i).Addr().Interface().(interface{ Validate() error })
		if !ok {
			continue
		}
		for _, err := range flattenErrors(section.Validate()) {
			if f := l.place(v.Type().Field(i).Tag.Get("toml"), err); !l.bad[f.Key] {
				l.faults = append(l.faults, f)
			}
		}
	}
	l.validateSocket()
	l.validatePlaintext()
	l.validatePeers()
	l.validateSlots()
	l.validateFree()
	l.validateIngress()
	l.validateFleet()
	l.validateArchive()
}

// validateFleet ensures that a node of a fleet has a registry, and that the edge has room for
// placed content.
func (l *loader) validateFleet() {
	fault := func(key, value, reason string) {
		l.faults = append(l.faults, &Fault{Where: l.whence(key), Key: key, Value: value, Reason: reason})
	}
	if l.cfg.Fleet.Enabled && !l.cfg.Registry.Enabled {
		fault("fleet.enabled", "true", "needs registry.enabled = true, whose items name the nodes")
	}
	const key = "fleet.max_placed"
	if placed, most := l.cfg.Fleet.MaxPlaced, l.cfg.Edge.CAS.MaxBytes; placed > most && !l.bad[key] &&
		!l.bad["edge.cas.max_bytes"] {
		fault(key, quote(placed.String()), fmt.Sprintf("must be at most edge.cas.max_bytes = %q", most))
	}
}

// validateArchive ensures that a node in memory has no archive, because its file is another one at
// each start, and that files of closed periods which do not stay on the disk have an archive.
func (l *loader) validateArchive() {
	const key, local = "archive.target", "ledger.periods_local"
	if !l.cfg.Archive.On() && !l.cfg.Ledger.PeriodsLocal && !l.bad[key] && !l.bad[local] {
		l.faults = append(l.faults, &Fault{
			Where: l.whence(local), Key: local, Value: "false", Reason: "needs " + key + ", which keeps the files then",
		})
	}
	if to := l.cfg.Archive.Target; to != "" && l.cfg.Amnesia.Enabled && !l.bad[key] {
		l.faults = append(l.faults, &Fault{
			Where: l.whence(key), Key: key, Value: quote(to), Reason: "must be empty with amnesia.enabled = true",
		})
	}
}

// The keys that bound the free space of the disk.
const (
	keyEdgeFree  = "edge.cas.min_free"
	keyStoreFree = "store.min_free"
)

// validateFree ensures that the edge keeps at least the free space below which the store refuses
// writes.
func (l *loader) validateFree() {
	edge, store := l.cfg.Edge.CAS.MinFree, l.cfg.Store.MinFree
	if !l.cfg.Edge.Enabled || edge >= store || l.bad[keyEdgeFree] || l.bad[keyStoreFree] {
		return
	}
	l.faults = append(l.faults, &Fault{
		Where: l.whence(keyEdgeFree),
		Key:   keyEdgeFree,
		Value: quote(edge.String()),
		Reason: fmt.Sprintf("must be at least %s = %q, below which the store refuses writes: raise it, or lower %[1]s",
			keyStoreFree, store),
	})
}

// validateIngress ensures that the edge raises no bound of a body.
func (l *loader) validateIngress() {
	for _, pair := range [][2]string{
		{"edge.ingress.body_bytes", "server.max_body_bytes"},
		{"edge.ingress.decompress_max_ratio", "server.decompress_ratio_cap"},
		{"edge.ingress.decompress_abs_bytes", "server.decompress_abs_bytes"},
	} {
		edge, node := find(l.all, pair[0]), find(l.all, pair[1])
		if edge.value.Int() <= node.value.Int() || l.bad[edge.key] || l.bad[node.key] {
			continue
		}
		l.faults = append(l.faults, &Fault{
			Where: l.whence(edge.key), Key: edge.key, Value: edge.text(),
			Reason: fmt.Sprintf("must be at most %s = %s, which it may only lower", node.key, node.text()),
		})
	}
}

// validateSlots ensures that a slot of the ledger's key index does not outlive the keys in it.
func (l *loader) validateSlots() {
	const key = "ledger.slot_width"
	if width, ttl := l.cfg.Ledger.SlotWidth, l.cfg.Wallet.IdempotencyTTL; width > ttl && !l.bad[key] &&
		!l.bad["wallet.idempotency_ttl"] {
		l.faults = append(l.faults, &Fault{
			Where: l.whence(key), Key: key, Value: quote(width.String()),
			Reason: fmt.Sprintf("must be at most wallet.idempotency_ttl = %q", ttl),
		})
	}
}

// validateSocket checks the length of the absolute socket path.
func (l *loader) validateSocket() {
	whole := front.UDSConfig{Path: l.cfg.SocketPath()}
	if err := whole.Validate(); err != nil && l.cfg.UDS.Validate() == nil {
		f := l.place("uds", err)
		f.Reason += ": choose a shorter one, outside the data directory"
		l.faults = append(l.faults, f)
	}
}

// validatePlaintext refuses plaintext on an address that other hosts reach, unless
// server.plaintext is set.
func (l *loader) validatePlaintext() {
	const key = "server.bind"
	if l.bad[key] || l.bad["tls.enabled"] || l.bad["server.plaintext"] ||
		front.CheckPlaintext(l.cfg.Server, l.cfg.TLS) == nil {
		return
	}
	l.faults = append(l.faults, &Fault{
		Where: l.whence(key),
		Key:   key,
		Value: quote(l.cfg.Server.Bind),
		Reason: "other hosts could connect without TLS: set tls.enabled with a certificate, or bind 127.0.0.1 " +
			"behind a proxy, " +
			"or set server.plaintext = true if that network is trusted",
	})
}

// validatePeers refuses unknown scopes in uds.map.
func (l *loader) validatePeers() {
	const key = "uds.map"
	if l.bad[key] || l.cfg.UDS.Validate() != nil {
		return
	}
	_, err := auth.NewPeerMap(l.cfg.UDS.AllowUIDs, l.cfg.UDS.Map, 0)
	if err == nil {
		err = checkScopes(key, l.cfg.UDS.Map)
	}
	for _, err := range flattenErrors(err) {
		l.faults = append(
			l.faults,
			&Fault{Where: l.whence(key), Key: key, Reason: strings.TrimPrefix(err.Error(), key+".")},
		)
	}
}

// checkScopes returns the unknown scopes of a map from peers to scopes, joined.
func checkScopes(key string, of map[string][]string) error {
	var errs []error
	for _, peer := range slices.Sorted(maps.Keys(of)) {
		for _, s := range of[peer] {
			if err := scopes.Check(s); err != nil {
				errs = append(errs, fmt.Errorf("%s.%q: %w", key, peer, err))
			}
		}
	}
	return errors.Join(errs...)
}
