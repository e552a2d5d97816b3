package auth

import (
	"errors"
	"fmt"
	"time"

	"ronbox/appliance/unit"
)

// Config holds the limits of tokens.
type Config struct {
	DefaultTTL    unit.Duration `toml:"default_ttl" reload:"r"`     // of a token minted without one
	MaxTTL        unit.Duration `toml:"max_ttl" reload:"r"`         // no token is minted for longer
	Rotate        unit.Duration `toml:"rotate" reload:"r"`          // how long a key mints before the next one does
	ClockSkew     unit.Duration `toml:"clock_skew" reload:"r"`      // by how much times may be missed
	MaxTokenBytes int           `toml:"max_token_bytes" reload:"r"` // of the text
	MaxCaveats    int           `toml:"max_caveats" reload:"r"`
}

// longestTTL bounds MaxTTL and what Check believes, so that a key can be retired and a revocation forgotten that long after.
const longestTTL = 30 * 24 * time.Hour

// The most that max_token_bytes and max_caveats may be: a token must fit into a request's head.
const (
	mostTokenBytes = 16384
	mostCaveats    = 256
)

// DefaultConfig is one hour by default, thirty days at most.
func DefaultConfig() Config {
	return Config{
		DefaultTTL: unit.Duration(time.Hour), MaxTTL: unit.Duration(longestTTL), Rotate: unit.Duration(longestTTL),
		ClockSkew: unit.Duration(30 * time.Second), MaxTokenBytes: 4096, MaxCaveats: 64,
	}
}

// Validate joins all faults.
func (c Config) Validate() error {
	var errs []error
	wrong := func(bad bool, key string, value any, must string) {
		if bad {
			errs = append(errs, fmt.Errorf("auth.%s = %v: must be %s", key, value, must))
		}
	}
	wrong(c.MaxTTL < unit.Duration(time.Minute) || c.MaxTTL > unit.Duration(longestTTL), "max_ttl", c.MaxTTL, "1m..30d")
	wrong(c.DefaultTTL < unit.Duration(time.Second) || c.DefaultTTL > c.MaxTTL, "default_ttl", c.DefaultTTL, "1s..auth.max_ttl")
	wrong(c.Rotate < unit.Duration(time.Hour) || c.Rotate > unit.Duration(longestTTL), "rotate", c.Rotate, "1h..30d")
	wrong(c.ClockSkew < 0 || c.ClockSkew > unit.Duration(MaxSkew), "clock_skew", c.ClockSkew, "0s..5m")
	wrong(c.MaxTokenBytes < 512 || c.MaxTokenBytes > mostTokenBytes, "max_token_bytes", c.MaxTokenBytes, "512..16384")
	wrong(c.MaxCaveats < 8 || c.MaxCaveats > mostCaveats, "max_caveats", c.MaxCaveats, "8..256")
	return errors.Join(errs...)
}
