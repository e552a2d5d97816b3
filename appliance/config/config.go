package config

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"ronbox/appliance/obs"
	"ronbox/appliance/unit"
	"ronbox/engines/edge"
	"ronbox/engines/index"
	"ronbox/engines/ledger"
	"ronbox/engines/registry"
	"ronbox/engines/rewarder"
	"ronbox/engines/wallet"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/front"
	"ronbox/httpapi/scopes"
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
	Edge     edge.Config         `toml:"edge"`
	Index    index.Config        `toml:"index"`
	Rewarder rewarder.Config     `toml:"rewarder"`
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
		Edge:     edge.DefaultConfig(),
		Index:    index.DefaultConfig(),
		Rewarder: rewarder.DefaultConfig(),
	}
}

// Validate joins every fault of the section.
func (n Node) Validate() error {
	var dir error
	if n.DataDir == "" {
		dir = errors.New(`data_dir = "": must name a directory`)
	}
	return errors.Join(dir,
		unit.Between("drain_cap", n.DrainCap, time.Second, 30*time.Second),
		unit.Between("predrain", n.Predrain, 0, 5*time.Minute),
		unit.Between("abort_grace", n.AbortGrace, 10*time.Millisecond, 5*time.Second),
	)
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

// Fault is one thing wrong with the configuration.
type Fault struct {
	Where  string // "ronbox.toml:41:3", "RONBOX_STORE__MAX_BYTES", "flag --data-dir", "default", or "" when nothing was loaded
	Key    string // "store.max_bytes", or "" where no key is to blame
	Value  string // as it was given, quoted; "" when there is none to show
	Reason string // "must be at least 1MiB"
	Cause  error  // what the system said, if anything
}

// Unwrap gives the cause.
func (f *Fault) Unwrap() error { return f.Cause }

// Error renders the fault as `where: key = value: reason`, leaving out what is not known.
func (f *Fault) Error() string {
	subject := f.Key
	if f.Key != "" && f.Value != "" {
		subject += " = " + f.Value
	}
	var parts []string
	for _, p := range []string{f.Where, subject, f.Reason} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, ": ")
}

// Faults gives every fault in err, in order.
func Faults(err error) []*Fault {
	switch e := err.(type) {
	case *Fault:
		return []*Fault{e}
	case interface{ Unwrap() error }:
		return Faults(e.Unwrap())
	case interface{ Unwrap() []error }:
		var out []*Fault
		for _, one := range e.Unwrap() {
			out = append(out, Faults(one)...)
		}
		return out
	}
	return nil
}

// flattenErrors takes apart what errors.Join put together.
func flattenErrors(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var out []error
	for _, e := range joined.Unwrap() {
		out = append(out, flattenErrors(e)...)
	}
	return out
}

// Validate joins every fault of cfg, each a *Fault that names its key.
func Validate(cfg *Config) error {
	l := &loader{cfg: cfg, all: leaves(cfg)}
	l.validate()
	return errors.Join(l.faults...)
}

// validate asks each section for its faults and gives each fault its place.
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
	l.validatePeers()
	l.validateAmnesia()
	l.validateSlots()
	l.validateFree()
}

// The keys that bound the free space of the disk.
const (
	keyEdgeFree  = "edge.cas.min_free"
	keyStoreFree = "store.min_free"
)

// validateFree keeps what the edge fetches from filling the disk to where the store refuses writes.
func (l *loader) validateFree() {
	edge, store := l.cfg.Edge.CAS.MinFree, l.cfg.Store.MinFree
	if !l.cfg.Edge.Enabled || edge >= store || l.bad[keyEdgeFree] || l.bad[keyStoreFree] {
		return
	}
	l.faults = append(l.faults, &Fault{
		Where: l.whence(keyEdgeFree), Key: keyEdgeFree, Value: quote(edge.String()),
		Reason: fmt.Sprintf("must be at least %s = %q, below which the store refuses writes: raise it, or lower %[1]s", keyStoreFree, store),
	})
}

// validateAmnesia refuses to promise to forget and to keep at once.
func (l *loader) validateAmnesia() {
	const key = "store.snapshot_every"
	if every := l.cfg.Store.SnapshotEvery; l.cfg.Amnesia.Enabled && every != 0 {
		l.faults = append(l.faults, &Fault{
			Where: l.whence(key), Key: key, Value: quote(every.String()), Reason: "must be 0s while amnesia.enabled is true",
		})
	}
}

// validateSlots keeps a slot of the ledger's index from outliving the keys in it.
func (l *loader) validateSlots() {
	const key = "ledger.slot_width"
	if width, ttl := l.cfg.Ledger.SlotWidth, l.cfg.Wallet.IdempotencyTTL; width > ttl && !l.bad[key] && !l.bad["wallet.idempotency_ttl"] {
		l.faults = append(l.faults, &Fault{
			Where: l.whence(key), Key: key, Value: quote(width.String()),
			Reason: fmt.Sprintf("must be at most wallet.idempotency_ttl = %q", ttl),
		})
	}
}

// validateSocket checks the socket's path once the data directory is put before it.
func (l *loader) validateSocket() {
	whole := front.UDSConfig{Path: l.cfg.SocketPath()}
	if err := whole.Validate(); err != nil && l.cfg.UDS.Validate() == nil {
		f := l.place("uds", err)
		f.Reason += ": give a shorter one, outside the data directory"
		l.faults = append(l.faults, f)
	}
}

// validatePeers refuses scopes that the node would refuse at its start.
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
		l.faults = append(l.faults, &Fault{Where: l.whence(key), Key: key, Reason: strings.TrimPrefix(err.Error(), key+".")})
	}
}

// checkScopes joins the unknown scopes of a map from peers to scopes.
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

// place turns a section's fault, which begins with the key it is about, into a Fault.
func (l *loader) place(section string, err error) *Fault {
	text := err.Error()
	word := text
	if end := strings.IndexAny(text, " :="); end >= 0 {
		word = text[:end]
	}
	for _, key := range []string{section + "." + word, word} {
		found := find(l.all, key)
		if found == nil {
			continue
		}
		f := &Fault{Where: l.whence(key), Key: key}
		f.Value, f.Reason = found.given(text[len(word):])
		return found.redact(f)
	}
	return &Fault{Key: section, Reason: text}
}

// given takes apart what a section says behind a key: ` = "1ms": must be 1s..30s`. A text is quoted, as TOML has it, where the section does
// not do so.
func (l leaf) given(said string) (value, reason string) {
	rest, ok := strings.CutPrefix(said, " = ")
	if !ok {
		return "", strings.TrimLeft(said, " :")
	}
	if value, err := strconv.QuotedPrefix(rest); err == nil {
		return value, strings.TrimPrefix(rest[len(value):], ": ")
	}
	value, reason, _ = strings.Cut(rest, ": ")
	if strings.HasPrefix(l.text(), `"`) {
		value = quote(value)
	}
	return value, reason
}

// whence is the place of a key's value. A default can be at fault too, when another key bounds it.
func (l *loader) whence(key string) string {
	if from, set := l.from[key]; set {
		return from.where
	}
	if l.from == nil {
		return "" // cfg was not loaded
	}
	return FromDefault
}
