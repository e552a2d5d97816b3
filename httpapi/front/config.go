package front

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"ronbox/appliance/unit"
)

// Config is the section [server].
type Config struct {
	Bind         string        `toml:"bind" reload:"b"`                    // host:port of the TCP listener; port 0: any free one
	MaxConns     int           `toml:"max_conns" reload:"r"`               // open TCP connections; one more gets a canned 503
	PerIP        int           `toml:"connection_limit_per_ip" reload:"r"` // of one address, or of one IPv6 /64; one more gets a canned 429
	Reserved     int           `toml:"reserved_conns" reload:"r"`          // beyond both caps, for probes from health_cidrs
	HealthCIDRs  []string      `toml:"health_cidrs" reload:"r"`            // networks that probes come from
	ReadTimeout  unit.Duration `toml:"read_timeout" reload:"b"`            // for the headers, then again for the body
	WriteTimeout unit.Duration `toml:"write_timeout" reload:"b"`           // beyond a request's deadline, and per frame of a stream
	IdleTimeout  unit.Duration `toml:"idle_timeout" reload:"b"`            // between two requests of a connection
	MaxHeader    unit.Size     `toml:"max_header" reload:"b"`              // request line and headers
	MaxBody      unit.Size     `toml:"max_body_bytes" reload:"r"`          // of a request, as it is sent
	RatioCap     int           `toml:"decompress_ratio_cap" reload:"r"`    // bytes that a compressed body may unfold to, by its own
	AbsCap       unit.Size     `toml:"decompress_abs_bytes" reload:"r"`    // and in all
	Trusted      []string      `toml:"trusted_proxies" reload:"r"`         // networks whose word on the client's address is taken
	MetricsAllow []string      `toml:"metrics_allow" reload:"r"`           // networks that may read /metrics without a token
	AdminOnTCP   bool          `toml:"admin_on_tcp" reload:"r"`            // serve /admin/v1 on TCP too, to holders of node.admin
	HSTS         bool          `toml:"hsts" reload:"r"`                    // tell browsers to stay with TLS, where it is on
	CORS         CORS          `toml:"cors" reload:"r"`
}

// CORS is the table [server.cors]: what pages of other origins may do. Empty, as by default, is nothing.
type CORS struct {
	AllowOrigins []string `toml:"allow_origins"`
	AllowMethods []string `toml:"allow_methods"`
	AllowHeaders []string `toml:"allow_headers"`
}

// DefaultConfig gives every default.
func DefaultConfig() Config {
	return Config{
		Bind:         "127.0.0.1:8080",
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

// Validate joins every fault of c.
func (c Config) Validate() error {
	return errors.Join(
		validateBind(c.Bind),
		within("max_conns", int64(c.MaxConns), 1, 1<<20),
		within("connection_limit_per_ip", int64(c.PerIP), 1, 1<<20),
		within("reserved_conns", int64(c.Reserved), 0, 1024),
		networks("health_cidrs", c.HealthCIDRs),
		between("read_timeout", c.ReadTimeout, 100*time.Millisecond, time.Minute),
		between("write_timeout", c.WriteTimeout, 100*time.Millisecond, time.Minute),
		between("idle_timeout", c.IdleTimeout, time.Second, time.Hour),
		sized("max_header", c.MaxHeader, 1<<10, 1<<20),
		sized("max_body_bytes", c.MaxBody, 1<<10, 64<<20),
		within("decompress_ratio_cap", int64(c.RatioCap), 1, 1000),
		sized("decompress_abs_bytes", c.AbsCap, c.MaxBody, 1<<30),
		networks("trusted_proxies", c.Trusted),
		networks("metrics_allow", c.MetricsAllow),
		c.CORS.validate(),
	)
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

func networks(key string, texts []string) error {
	if _, err := ParseNetworks(texts); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// ParseNetworks reads the networks of a key that lists them.
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

// within judges a number. A range that another key has made empty is that key's fault.
func within(key string, v, lo, hi int64) error {
	if lo <= hi && (v < lo || v > hi) {
		return fmt.Errorf("%s = %d: must be %d..%d", key, v, lo, hi)
	}
	return nil
}

func sized(key string, v, lo, hi unit.Size) error {
	if lo <= hi && (v < lo || v > hi) {
		return fmt.Errorf("%s = %q: must be %s..%s", key, v, lo, hi)
	}
	return nil
}

func between(key string, v unit.Duration, lo, hi time.Duration) error {
	if v.D() < lo || v.D() > hi {
		return fmt.Errorf("%s = %s: must be %s..%s", key, v, unit.Duration(lo), unit.Duration(hi))
	}
	return nil
}
