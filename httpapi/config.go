package httpapi

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
	Bind         string        `toml:"bind"`           // host:port of the TCP listener; port 0: any free one
	MaxConns     int           `toml:"max_conns"`      // open TCP connections; one more gets a canned 503
	ReadTimeout  unit.Duration `toml:"read_timeout"`   // for the headers, then again for the body
	WriteTimeout unit.Duration `toml:"write_timeout"`  // beyond a request's deadline, and per frame of a stream
	IdleTimeout  unit.Duration `toml:"idle_timeout"`   // between two requests of a connection
	MaxHeader    unit.Size     `toml:"max_header"`     // request line and headers
	MaxBody      unit.Size     `toml:"max_body_bytes"` // of a request
	MetricsAllow []string      `toml:"metrics_allow"`  // networks that may read /metrics without a token
	AdminOnTCP   bool          `toml:"admin_on_tcp"`   // serve /admin/v1 on TCP too, to holders of node.admin
}

// UDSConfig is the section [uds], the admin socket. Path is resolved by the owner of the data directory.
type UDSConfig struct {
	Path string `toml:"path"`
}

// maxSocketPath is what fits in sockaddr_un with its NUL.
const maxSocketPath = 107

// DefaultConfig gives every default.
func DefaultConfig() Config {
	return Config{
		Bind:         "127.0.0.1:8080",
		MaxConns:     1024,
		ReadTimeout:  unit.Duration(5 * time.Second),
		WriteTimeout: unit.Duration(5 * time.Second),
		IdleTimeout:  unit.Duration(60 * time.Second),
		MaxHeader:    16 << 10,
		MaxBody:      1 << 20,
		MetricsAllow: []string{"127.0.0.0/8", "::1/128"},
	}
}

// Validate joins every fault of c.
func (c Config) Validate() error {
	var faults []error
	if _, port, err := net.SplitHostPort(c.Bind); err != nil {
		faults = append(faults, fmt.Errorf("bind = %q: must be host:port", c.Bind))
	} else if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		faults = append(faults, fmt.Errorf("bind = %q: port must be 0..65535", c.Bind))
	}
	if _, err := parsePrefixes(c.MetricsAllow); err != nil {
		faults = append(faults, fmt.Errorf("metrics_allow: %w", err))
	}
	return errors.Join(append(faults,
		within("max_conns", int64(c.MaxConns), 1, 1<<20),
		within("max_header", c.MaxHeader.Bytes(), 1<<10, 1<<20),
		within("max_body_bytes", c.MaxBody.Bytes(), 1<<10, 64<<20),
		between("read_timeout", c.ReadTimeout, 100*time.Millisecond, time.Minute),
		between("write_timeout", c.WriteTimeout, 100*time.Millisecond, time.Minute),
		between("idle_timeout", c.IdleTimeout, time.Second, time.Hour),
	)...)
}

// Validate refuses a path that no socket can have.
func (c UDSConfig) Validate() error {
	if len(c.Path) > maxSocketPath {
		return fmt.Errorf("path = %q: %d bytes, a socket path has at most %d", c.Path, len(c.Path), maxSocketPath)
	}
	return nil
}

func parsePrefixes(texts []string) ([]netip.Prefix, error) {
	out := make([]netip.Prefix, 0, len(texts))
	for _, t := range texts {
		p, err := netip.ParsePrefix(t)
		if err != nil {
			return nil, fmt.Errorf("%q: must be a network such as 127.0.0.0/8", t)
		}
		out = append(out, p)
	}
	return out, nil
}

func within(key string, v, lo, hi int64) error {
	if v < lo || v > hi {
		return fmt.Errorf("%s = %d: must be %d..%d", key, v, lo, hi)
	}
	return nil
}

func between(key string, v unit.Duration, lo, hi time.Duration) error {
	if v.D() < lo || v.D() > hi {
		return fmt.Errorf("%s = %s: must be %s..%s", key, v, unit.Duration(lo), unit.Duration(hi))
	}
	return nil
}
