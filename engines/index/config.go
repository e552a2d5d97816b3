package index

import (
	"cmp"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"runtime"
	"strings"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/unit"
)

// Config is the section [index].
type Config struct {
	Enabled       bool            `toml:"enabled" reload:"x"`     // false: no tasks and no routes; what the file holds stays
	Peers         []string        `toml:"peers" reload:"x"`       // "URL#region": https, or http on loopback
	Trust         []string        `toml:"trust" reload:"r"`       // "suffix=key": whose signed names of other nodes are taken; suffix "*": of any key
	InlineHits    bool            `toml:"inline_hits" reload:"r"` // false: what the cache or the file answers is queued as any other
	Stale         bool            `toml:"stale" reload:"r"`       // answers past their time are served while peers fail; false: the failure is
	Resolver      ResolverConfig  `toml:"resolver" reload:"x"`
	DHT           DHTConfig       `toml:"dht" reload:"r"`
	Breaker       BreakerConfig   `toml:"breaker" reload:"r"`
	Cache         CacheConfig     `toml:"cache" reload:"r"`
	Limits        LimitsConfig    `toml:"limits" reload:"r"`
	RateLimit     RateLimitConfig `toml:"ratelimit" reload:"r"`
	Quotas        QuotasConfig    `toml:"quotas" reload:"r"`
	DrainDeadline unit.Duration   `toml:"drain_deadline" reload:"r"`
}

// ResolverConfig sizes the pool. A worker is held for as long as a lookup takes.
type ResolverConfig struct {
	Workers int `toml:"workers"` // 0: 8 for each processor, at least 16
}

// DHTConfig paces a lookup among the peers.
type DHTConfig struct {
	Alpha      int `toml:"alpha"`       // peers asked at once
	Beta       int `toml:"beta"`        // others, asked when the first have not answered in time
	HedgeMS    int `toml:"hedge_ms"`    // that time
	DeadlineMS int `toml:"deadline_ms"` // of a lookup in all, from its admission
}

// BreakerConfig says when a peer is left alone.
type BreakerConfig struct {
	ErrorWindowS   int     `toml:"error_window_s"`
	TripThreshold  float64 `toml:"trip_threshold"` // it opens above this share of failures
	CooldownS      int     `toml:"cooldown_s"`
	HalfOpenProbes int     `toml:"half_open_probes"`
	MinSamples     int     `toml:"min_samples"` // fewer calls within the window say nothing
}

// CacheConfig bounds the cache of answers.
type CacheConfig struct {
	Entries    int      `toml:"entries" reload:"x"` // KiB of answers, about one answer each
	TTLMS      int      `toml:"ttl_ms"`             // of what was found, give or take a tenth
	NegTTLMS   int      `toml:"neg_ttl_ms"`         // of what was not; 0: never kept
	StaleMS    int      `toml:"stale_ms"`           // how long past its time an answer may be served while peers fail
	WarmupKeys []string `toml:"warmup_keys" reload:"x"`
}

// LimitsConfig bounds the requests in flight of each route, above work_tx, so that the queue's own refusal is met.
type LimitsConfig struct {
	Inflight int `toml:"inflight"`
}

// RateLimitConfig is the buckets of one client network. 0: off.
type RateLimitConfig struct {
	RPS     int `toml:"rps"`
	Burst   int `toml:"burst"`
	MissRPS int `toml:"miss_rps"` // lookups that leave this node, twice as many at once
	PutRPS  int `toml:"put_rps"`  // writes, twice as many at once
}

// QuotasConfig bounds what all clients ask for in a minute. 0: off.
type QuotasConfig struct {
	ResolvesPerMin  int `toml:"resolves_per_min"`
	ProvidersPerMin int `toml:"providers_per_min"`
}

// Bounds of lists.
const (
	maxPeers  = 64
	maxTrust  = 256
	maxWarmup = 1024
)

// DefaultConfig gives every default.
func DefaultConfig() Config {
	return Config{
		Enabled: true, Peers: []string{}, Trust: []string{}, InlineHits: true, Stale: true,
		DHT:           DHTConfig{Alpha: 3, Beta: 2, HedgeMS: 150, DeadlineMS: 1200},
		Breaker:       BreakerConfig{ErrorWindowS: 30, TripThreshold: 0.5, CooldownS: 10, HalfOpenProbes: 3, MinSamples: 10},
		Cache:         CacheConfig{Entries: 100_000, TTLMS: 10_000, NegTTLMS: 2000, StaleMS: 600_000, WarmupKeys: []string{}},
		Limits:        LimitsConfig{Inflight: 1024},
		RateLimit:     RateLimitConfig{MissRPS: 100, PutRPS: 500},
		DrainDeadline: unit.Duration(3 * time.Second),
	}
}

// Validate joins every fault of c.
func (c Config) Validate() error {
	return errors.Join(
		c.validatePeers(),
		c.validateTrust(),
		c.validateWarmup(),
		unit.Within("resolver.workers", c.Resolver.Workers, 0, 1024),
		unit.Within("dht.alpha", c.DHT.Alpha, 1, 16),
		unit.Within("dht.beta", c.DHT.Beta, 0, 16),
		unit.Within("dht.deadline_ms", c.DHT.DeadlineMS, 50, 5000),
		unit.Within("dht.hedge_ms", c.DHT.HedgeMS, 1, c.DHT.DeadlineMS-1),
		unit.Within("breaker.error_window_s", c.Breaker.ErrorWindowS, 1, 3600),
		unit.Within("breaker.trip_threshold", c.Breaker.TripThreshold, 0.01, 0.99),
		unit.Within("breaker.cooldown_s", c.Breaker.CooldownS, 1, 3600),
		unit.Within("breaker.half_open_probes", c.Breaker.HalfOpenProbes, 1, 100),
		unit.Within("breaker.min_samples", c.Breaker.MinSamples, 1, 100_000),
		unit.Within("cache.entries", c.Cache.Entries, 1000, 10_000_000),
		unit.Within("cache.ttl_ms", c.Cache.TTLMS, 100, 3_600_000),
		unit.Within("cache.neg_ttl_ms", c.Cache.NegTTLMS, 0, 300_000),
		unit.Within("cache.stale_ms", c.Cache.StaleMS, 0, 86_400_000),
		unit.Within("limits.inflight", c.Limits.Inflight, workCap+1, 65_536),
		unit.Within("ratelimit.rps", c.RateLimit.RPS, 0, 1_000_000),
		unit.Within("ratelimit.burst", c.RateLimit.Burst, 0, 1_000_000),
		unit.Within("ratelimit.miss_rps", c.RateLimit.MissRPS, 0, 1_000_000),
		unit.Within("ratelimit.put_rps", c.RateLimit.PutRPS, 0, 1_000_000),
		unit.Within("quotas.resolves_per_min", c.Quotas.ResolvesPerMin, 0, 1_000_000_000),
		unit.Within("quotas.providers_per_min", c.Quotas.ProvidersPerMin, 0, 1_000_000_000),
		unit.Between("drain_deadline", c.DrainDeadline, time.Second, 5*time.Second),
	)
}

func (c Config) validatePeers() error {
	if len(c.Peers) > maxPeers {
		return fmt.Errorf("peers: must be at most %d", maxPeers)
	}
	hosts := map[string]bool{}
	for _, p := range c.Peers {
		at, _, err := SplitPeer(p)
		if err != nil {
			return err
		}
		if hosts[at.Host] {
			return fmt.Errorf("peers: %q is there twice", at.Host)
		}
		hosts[at.Host] = true
	}
	return nil
}

// SplitPeer reads an element of Config.Peers: where the peer is and its region, which may be "".
func SplitPeer(s string) (at *url.URL, region string, err error) {
	at, err = url.Parse(s)
	if err != nil {
		return nil, "", fmt.Errorf("peers: %q: must be URL#region", s)
	}
	region, at.Fragment = at.Fragment, ""
	switch {
	case at.Host == "" || at.User != nil || at.RawQuery != "" || at.Path != "" && at.Path != "/":
		return nil, "", fmt.Errorf("peers: %q: must be https://host:port#region, without path, query or user", s)
	case at.Scheme == "https", at.Scheme == "http" && isLoopback(at.Hostname()):
	default:
		return nil, "", fmt.Errorf("peers: %q: must be https, or http on loopback", s)
	}
	if err := CheckRegion(region); err != nil {
		return nil, "", fmt.Errorf("peers: %q: %w", s, err)
	}
	return at, region, nil
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

func (c Config) validateTrust() error {
	if len(c.Trust) > maxTrust {
		return fmt.Errorf("trust: must be at most %d", maxTrust)
	}
	_, err := parseTrust(c.Trust)
	return err
}

func (c Config) validateWarmup() error {
	if len(c.Cache.WarmupKeys) > maxWarmup {
		return fmt.Errorf("cache.warmup_keys: must be at most %d", maxWarmup)
	}
	for _, k := range c.Cache.WarmupKeys {
		if _, err := ParseKey(k); err != nil {
			return fmt.Errorf("cache.warmup_keys: %q: %w", k, err)
		}
	}
	return nil
}

// trust is a key whose signed names are taken, if they end in suffix.
type trust struct {
	suffix string // normalised; "*": any key
	key    ed25519.PublicKey
}

// parseTrust reads Config.Trust.
func parseTrust(list []string) (out []trust, err error) {
	for _, s := range list {
		suffix, text, ok := strings.Cut(s, "=")
		if !ok {
			return nil, fmt.Errorf("trust: %q: must be suffix=key", s)
		}
		if suffix != "*" {
			if suffix, err = NormalizeName(strings.TrimPrefix(suffix, ".")); err != nil {
				return nil, fmt.Errorf("trust: %q: %w", s, err)
			}
		}
		key, ok := PeerID(text).Key()
		if raw, err := hex.DecodeString(text); !ok && err == nil && len(raw) == ed25519.PublicKeySize {
			key, ok = raw, true
		}
		if !ok {
			return nil, fmt.Errorf("trust: %q: key must be the id of an Ed25519 peer or 64 hex digits", s)
		}
		out = append(out, trust{suffix, key})
	}
	return out, nil
}

// settings is a Config as the tasks use it: one snapshot, never changed.
type settings struct {
	Config
	trusted            []trust
	hedge, deadline    time.Duration
	fair               time.Duration // a call that had less before the deadline ended it says nothing of its peer
	least              time.Duration // with less before the deadline no peer is asked
	ttl, neg, staleFor time.Duration
}

// settle derives the settings of a valid configuration.
func settle(c Config) *settings {
	trusted, _ := parseTrust(c.Trust) // Validate has read it
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	hedge, deadline := ms(c.DHT.HedgeMS), ms(c.DHT.DeadlineMS)
	return &settings{
		Config: c, trusted: trusted, hedge: hedge, deadline: deadline,
		fair: min(2*hedge, deadline*3/4), least: min(hedge, deadline/4), // also where the hedge time is nearly all there is
		ttl: ms(c.Cache.TTLMS), neg: ms(c.Cache.NegTTLMS), staleFor: ms(c.Cache.StaleMS),
	}
}

// keysFor are the keys that are trusted for k.
func (s *settings) keysFor(k Key) (keys []ed25519.PublicKey) {
	name := k.name()
	for _, t := range s.trusted {
		if t.suffix == "*" || name == t.suffix || strings.HasSuffix(name, "."+t.suffix) {
			keys = append(keys, t.key)
		}
	}
	return keys
}

// rule is the rule of the peers' breakers.
func (c BreakerConfig) rule() flow.BreakerRule {
	return flow.BreakerRule{
		Ratio: c.TripThreshold, Min: c.MinSamples, Window: time.Duration(c.ErrorWindowS) * time.Second,
		Cooldown: time.Duration(c.CooldownS) * time.Second, Probes: c.HalfOpenProbes,
		MayFail: min(int(c.TripThreshold*float64(c.HalfOpenProbes)), c.HalfOpenProbes-1),
	}
}

// workers is the size of the pool.
func (c ResolverConfig) workers() int { return cmp.Or(c.Workers, max(16, 8*runtime.GOMAXPROCS(0))) }
