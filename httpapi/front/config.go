package front

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"ronbox/appliance/unit"
)

// Config is the section [server].
type Config struct {
	// host:port of the TCP listener; port 0: any free one
	Bind string `toml:"bind" reload:"b"`
	// permit an address other than loopback without TLS
	Plaintext bool `toml:"plaintext" reload:"b"`
	Acceptors int  `toml:"acceptors"` // accept loops
	// open TCP connections; further ones get 503
	MaxConns int `toml:"max_conns" reload:"r"`
	// of one address, or of one IPv6 /64; further ones get 429
	PerIP int `toml:"connection_limit_per_ip" reload:"r"`
	// connections beyond both limits, for probes from health_cidrs
	Reserved    int           `toml:"reserved_conns" reload:"r"`
	HealthCIDRs []string      `toml:"health_cidrs" reload:"r"` // networks of health probes
	ReadTimeout unit.Duration `toml:"read_timeout" reload:"b"` // for the headers, and again for the body
	// added to a request's deadline; also per frame of a stream, and per 64 KiB of a long answer
	WriteTimeout unit.Duration `toml:"write_timeout" reload:"b"`
	IdleTimeout  unit.Duration `toml:"idle_timeout" reload:"b"`   // between two requests on a connection
	MaxHeader    unit.Size     `toml:"max_header"`                // request line and headers, in bytes
	MaxBody      unit.Size     `toml:"max_body_bytes" reload:"r"` // of a request, before decompression
	// decompressed size of a body, as a multiple of its compressed size
	RatioCap int       `toml:"decompress_ratio_cap" reload:"r"`
	AbsCap   unit.Size `toml:"decompress_abs_bytes" reload:"r"` // decompressed size of a body
	// networks of proxies that may name the client's address and the requested scheme and host
	Trusted []string `toml:"trusted_proxies" reload:"r"`
	// networks that may read /metrics without a token
	MetricsAllow []string `toml:"metrics_allow" reload:"r"`
	// serve /admin/v1 on TCP too, for tokens with the scope node.admin
	AdminOnTCP bool `toml:"admin_on_tcp" reload:"r"`
	// send Strict-Transport-Security if TLS is on
	HSTS bool `toml:"hsts" reload:"r"`
	CORS CORS `toml:"cors" reload:"r"`
}

// CORS is the table [server.cors]: the permissions of pages from other origins. Empty lists, the
// default, permit nothing.
type CORS struct {
	AllowOrigins []string `toml:"allow_origins"`
	AllowMethods []string `toml:"allow_methods"`
	AllowHeaders []string `toml:"allow_headers"`
}

// DefaultConfig returns every default.
func DefaultConfig() Config {
	return Config{
		Bind:         "127.0.0.1:8080",
		Acceptors:    1,
		MaxConns:     1024,
		PerIP:        256,
		Reserved:     16,
		HealthCIDRs:  loopback(),
		ReadTimeout:  unit.Duration(5 * time.Second),
		WriteTimeout: unit.Duration(5 * time.Second),
		IdleTimeout:  unit.Duration(60 * time.Second),
		MaxHeader:    16 << 10,
		MaxBody:      1 << 20,
		RatioCap:     10,
		AbsCap:       10 << 20,
		Trusted:      []string{},
		MetricsAllow: loopback(),
		HSTS:         true,
		CORS:         CORS{AllowOrigins: []string{}, AllowMethods: []string{}, AllowHeaders: []string{}},
	}
}

func loopback() []string { return []string{"127.0.0.0/8", "::1/128"} }

// Validate joins all errors of c.
func (c Config) Validate() error {
	return errors.Join(validateBind(c.Bind), unit.Within("acceptors", c.Acceptors, 1, 16),
		unit.Within("max_conns", c.MaxConns, 1, 1<<20), unit.Within("connection_limit_per_ip", c.PerIP, 1, 1<<20),
		unit.Within("reserved_conns", c.Reserved, 0, 1024), validNetworks("health_cidrs", c.HealthCIDRs),
		unit.Between("read_timeout", c.ReadTimeout, 100*time.Millisecond, time.Minute),
		unit.Between("write_timeout", c.WriteTimeout, 100*time.Millisecond, time.Minute),
		unit.Between("idle_timeout", c.IdleTimeout, time.Second, time.Hour),
		unit.Within("max_header", c.MaxHeader, 1<<10, 1<<20), unit.Within("max_body_bytes", c.MaxBody, 1<<10, 64<<20),
		unit.Within("decompress_ratio_cap", c.RatioCap, 1, 1000),
		unit.Within("decompress_abs_bytes", c.AbsCap, c.MaxBody, 1<<30), validNetworks("trusted_proxies", c.Trusted),
		validNetworks("metrics_allow", c.MetricsAllow), c.CORS.validate())
}

func validateBind(bind string) error {
	_, port, err := net.SplitHostPort(bind)
	if err != nil {
		return fmt.Errorf("bind = %q: must be host:port", bind)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("bind = %q: port must be 0..65535", bind)
	}
	return nil
}

func validNetworks(key string, texts []string) error {
	if _, err := ParseNetworks(texts); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// ParseNetworks parses the networks of a key.
func ParseNetworks(texts []string) ([]netip.Prefix, error) {
	out := make([]netip.Prefix, 0, len(texts))
	for _, t := range texts {
		p, err := netip.ParsePrefix(t)
		if err != nil {
			return nil, fmt.Errorf("%q: must be a network such as 127.0.0.0/8", t)
		}
		if p.Addr().Is4In6() {
			return nil, fmt.Errorf("%q: must be written as IPv4, which is how its clients are seen", t)
		}
		out = append(out, p)
	}
	return out, nil
}

// networks are the settings that a reload changes in place.
type networks struct{ trusted, health []netip.Prefix }

// newNetworks parses the networks of a validated cfg.
func newNetworks(cfg Config) *networks {
	trusted, _ := ParseNetworks(cfg.Trusted)
	health, _ := ParseNetworks(cfg.HealthCIDRs)
	return &networks{trusted: trusted, health: health}
}

func (n *networks) trusts(a netip.Addr) bool { return contains(n.trusted, a) }
func (n *networks) probes(a netip.Addr) bool { return contains(n.health, a) }

func contains(all []netip.Prefix, a netip.Addr) bool {
	for _, p := range all {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// token is the syntax of a method and of a header name.
var token = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

func (c CORS) validate() error {
	var faults []error
	for _, o := range c.AllowOrigins {
		if !isOrigin(o) {
			faults = append(
				faults,
				fmt.Errorf("cors.allow_origins: %q: must be an origin such as https://app.example, or \"*\"", o),
			)
		}
	}
	for _, m := range c.AllowMethods {
		if !token.MatchString(m) {
			faults = append(faults, fmt.Errorf("cors.allow_methods: %q: must be a method such as GET", m))
		}
	}
	for _, h := range c.AllowHeaders {
		if !token.MatchString(h) {
			faults = append(faults, fmt.Errorf("cors.allow_headers: %q: must be the name of a header", h))
		}
	}
	return errors.Join(faults...)
}

// isOrigin reports whether s is "*" or a scheme, host and port as browsers write them.
func isOrigin(s string) bool {
	if s == "*" {
		return true
	}
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && s == u.Scheme+"://"+u.Host
}

// TLSConfig is the section [tls].
type TLSConfig struct {
	Enabled  bool   `toml:"enabled" reload:"b"`   // TLS 1.3 on the TCP listener
	CertPath string `toml:"cert_path" reload:"r"` // PEM: the node's certificate, followed by its issuers
	KeyPath  string `toml:"key_path" reload:"r"`  // PEM, readable by its owner only, or root's by its group
}

// DefaultTLSConfig returns every default.
func DefaultTLSConfig() TLSConfig { return TLSConfig{} }

// Validate joins all errors of c. The files are checked when they are read.
func (c TLSConfig) Validate() error {
	if !c.Enabled {
		return nil
	}
	var cert, key error
	if c.CertPath == "" {
		cert = errors.New(`cert_path = "": must name a file when tls.enabled is true`)
	}
	if c.KeyPath == "" {
		key = errors.New(`key_path = "": must name a file when tls.enabled is true`)
	}
	return errors.Join(cert, key)
}

// maxSocketPath is the longest path in a sockaddr_un.
const maxSocketPath = 107

// UDSConfig is the section [uds], the admin socket. Path is resolved by the owner of the data
// directory.
type UDSConfig struct {
	Path      string              `toml:"path" reload:"b"`
	AllowUIDs []uint32            `toml:"allow_uids" reload:"b"` // admitted in addition to the node's own uid
	Map       map[string][]string `toml:"map" reload:"r"`        // scopes of a peer, by "uid:1000" or "gid:100"
}

// DefaultUDSConfig returns every default.
func DefaultUDSConfig() UDSConfig {
	return UDSConfig{AllowUIDs: []uint32{}, Map: map[string][]string{}}
}

// Validate joins all errors of c. The package that grants scopes checks their names.
func (c UDSConfig) Validate() error {
	var faults []error
	if len(c.Path) > maxSocketPath {
		faults = append(
			faults,
			fmt.Errorf("path = %q: %d bytes, a socket path has at most %d", c.Path, len(c.Path), maxSocketPath),
		)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Map)) {
		if !isPeerName(name) {
			faults = append(faults, fmt.Errorf("map: %q: must be uid:<number> or gid:<number>", name))
		}
	}
	return errors.Join(faults...)
}

func isPeerName(s string) bool {
	kind, number, _ := strings.Cut(s, ":")
	_, err := strconv.ParseUint(number, 10, 32)
	return err == nil && (kind == "uid" || kind == "gid")
}

// namesOthers reports whether users other than the node's own and root may be admitted.
func (c UDSConfig) namesOthers() bool {
	other := func(uid uint32) bool { return !uidAllowed(uid, 0) }
	if slices.ContainsFunc(c.AllowUIDs, other) {
		return true
	}
	for name := range c.Map {
		kind, number, _ := strings.Cut(name, ":")
		id, _ := strconv.ParseUint(number, 10, 32) // validated
		if kind == "gid" || other(uint32(id)) {
			return true
		}
	}
	return false
}
