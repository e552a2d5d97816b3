package index

import (
	"cmp"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/unit"
	"ronbox/engines/index/lookup"
	"ronbox/engines/index/name"
)

// Config is the section [index].
type Config struct {
	// false: no tasks and no routes; rows in the file stay
	Enabled bool     `toml:"enabled" reload:"x"`
	Peers   []string `toml:"peers" reload:"x"` // "URL#region": https, or http on loopback
	// PEM file of CA certificates for peers; "": those of the system
	CAFile string `toml:"ca_file" reload:"r"`
	// "host:port" of a peer → file with the bearer token for it
	PeerTokens map[string]string `toml:"peer_tokens" reload:"r"`
	// false: reads need a token with the scope index.read
	PublicReads bool `toml:"public_reads" reload:"x"`
	// "suffix=key": a key that may sign names with this suffix for this node; suffix "*": any name
	Trust []string `toml:"trust" reload:"r"`
	// false: lookups that the cache or the file answers are queued too
	InlineHits bool `toml:"inline_hits" reload:"r"`
	// serve stale answers while peers fail; false: answer with the failure
	Stale         bool            `toml:"stale" reload:"r"`
	Resolver      ResolverConfig  `toml:"resolver" reload:"x"`
	DHT           DHTConfig       `toml:"dht" reload:"r"`
	Breaker       BreakerConfig   `toml:"breaker" reload:"r"`
	Cache         CacheConfig     `toml:"cache" reload:"r"`
	Limits        LimitsConfig    `toml:"limits" reload:"r"`
	RateLimit     RateLimitConfig `toml:"ratelimit" reload:"r"`
	Quotas        QuotasConfig    `toml:"quotas" reload:"r"`
	DrainDeadline unit.Duration   `toml:"drain_deadline" reload:"r"`
}

// ResolverConfig sizes the pool of workers. A lookup holds its worker until it ends.
type ResolverConfig struct {
	Workers int `toml:"workers"` // 0: 8 per processor, at least 16
}

// DHTConfig paces a lookup among the peers.
type DHTConfig struct {
	Alpha      int `toml:"alpha"`       // peers asked at once
	Beta       int `toml:"beta"`        // further peers, asked if the first have not answered at the hedge time
	HedgeMS    int `toml:"hedge_ms"`    // hedge time
	DeadlineMS int `toml:"deadline_ms"` // of the whole lookup, from its admission
}

// BreakerConfig configures the circuit breakers of the peers.
type BreakerConfig struct {
	ErrorWindowS   int     `toml:"error_window_s"`
	TripThreshold  float64 `toml:"trip_threshold"` // share of failures above which the breaker opens
	CooldownS      int     `toml:"cooldown_s"`
	HalfOpenProbes int     `toml:"half_open_probes"`
	MinSamples     int     `toml:"min_samples"` // the breaker does not open after fewer calls in the window
}

// CacheConfig bounds the cache of answers.
type CacheConfig struct {
	Entries    int      `toml:"entries" reload:"x"` // KiB of answers, about one answer each
	TTLMS      int      `toml:"ttl_ms"`             // of answers that were found, ± 10 %
	NegTTLMS   int      `toml:"neg_ttl_ms"`         // of "not found"; 0: not cached
	StaleMS    int      `toml:"stale_ms"`           // after the TTL: stale answers may be served while peers fail
	WarmupKeys []string `toml:"warmup_keys" reload:"x"`
}

// LimitsConfig bounds the requests in flight of each route. Inflight is larger than work_tx, so
// that the queue itself refuses lookups first.
type LimitsConfig struct {
	Inflight int `toml:"inflight"`
}

// RateLimitConfig sets the rates of one client network. 0 disables a rate.
type RateLimitConfig struct {
	RPS     int `toml:"rps"`
	Burst   int `toml:"burst"`
	MissRPS int `toml:"miss_rps"` // lookups that leave this node; the burst is twice the rate
	PutRPS  int `toml:"put_rps"`  // writes; the burst is twice the rate
}

// QuotasConfig bounds the lookups of all clients per minute. 0 disables a quota.
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

// DefaultConfig returns the default configuration.
func DefaultConfig() Config {
	return Config{
		Enabled:     true,
		Peers:       []string{},
		PeerTokens:  map[string]string{},
		PublicReads: true,
		Trust:       []string{},
		InlineHits:  true,
		Stale:       true,
		DHT:         DHTConfig{Alpha: 3, Beta: 2, HedgeMS: 150, DeadlineMS: 1200},
		Breaker: BreakerConfig{
			ErrorWindowS:   30,
			TripThreshold:  0.5,
			CooldownS:      10,
			HalfOpenProbes: 3,
			MinSamples:     10,
		},
		Cache: CacheConfig{
			Entries:    100_000,
			TTLMS:      10_000,
			NegTTLMS:   2000,
			StaleMS:    600_000,
			WarmupKeys: []string{},
		},
		Limits:        LimitsConfig{Inflight: 1024},
		RateLimit:     RateLimitConfig{MissRPS: 100, PutRPS: 500},
		DrainDeadline: unit.Duration(3 * time.Second),
	}
}

// Validate returns all faults of c, joined.
func (c Config) Validate() error {
	return errors.Join(c.validatePeers(), c.validatePeerTokens(), c.validateTrust(), c.validateWarmup(),
		unit.Within("resolver.workers", c.Resolver.Workers, 0, 1024), unit.Within("dht.alpha", c.DHT.Alpha, 1, 16),
		unit.Within("dht.beta", c.DHT.Beta, 0, 16), unit.Within("dht.deadline_ms", c.DHT.DeadlineMS, 50, 5000),
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
		unit.Between("drain_deadline", c.DrainDeadline, time.Second, 5*time.Second))
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

func (c Config) validatePeerTokens() error {
	known := map[string]bool{}
	for _, p := range c.Peers {
		if at, _, err := SplitPeer(p); err == nil {
			known[at.Host] = true
		}
	}
	for _, host := range slices.Sorted(maps.Keys(c.PeerTokens)) {
		switch {
		case !known[host]:
			return fmt.Errorf(
				"peer_tokens: %q: must be the host and port of one of index.peers, as it is written there", host)
		case !filepath.IsAbs(c.PeerTokens[host]): // configuration is shown: the value must not be the token itself
			return fmt.Errorf("peer_tokens: %q: must be the absolute path of the file that holds the token", host)
		}
	}
	return nil
}

// SplitPeer parses an element of Config.Peers into the URL and the region of the peer. The region
// may be "".
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
	if err := name.CheckRegion(region); err != nil {
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
		if _, err := name.ParseKey(k); err != nil {
			return fmt.Errorf("cache.warmup_keys: %q: %w", k, err)
		}
	}
	return nil
}

// trust is a key that may sign names which end in suffix.
type trust struct {
	suffix string // normalised; "*": any key
	key    ed25519.PublicKey
}

// parseTrust parses Config.Trust.
func parseTrust(list []string) (out []trust, err error) {
	for _, s := range list {
		suffix, text, ok := strings.Cut(s, "=")
		if !ok {
			return nil, fmt.Errorf("trust: %q: must be suffix=key", s)
		}
		if suffix != "*" {
			if suffix, err = name.NormalizeName(strings.TrimPrefix(suffix, ".")); err != nil {
				return nil, fmt.Errorf("trust: %q: %w", s, err)
			}
		}
		key, ok := name.PeerID(text).Key()
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

// settings is the Config in the form that tasks use. It is immutable.
type settings struct {
	Config
	trusted  []trust
	pace     lookup.Pace
	deadline time.Duration
	least    time.Duration // with less time before the deadline no peer is asked
}

// settle derives the settings of a valid configuration.
func settle(c Config) *settings {
	trusted, _ := parseTrust(c.Trust) // checked by Validate
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	hedge, deadline := ms(c.DHT.HedgeMS), ms(c.DHT.DeadlineMS)
	return &settings{
		Config:   c,
		trusted:  trusted,
		deadline: deadline,
		least:    min(hedge, deadline/4), // bounded in case the hedge time is close to the deadline, as is fair
		pace: lookup.Pace{
			Alpha:    c.DHT.Alpha,
			Beta:     c.DHT.Beta,
			Hedge:    hedge,
			Fair:     min(2*hedge, deadline*3/4),
			LateFor:  time.Duration(c.Breaker.CooldownS) * time.Second,
			TTL:      ms(c.Cache.TTLMS),
			Neg:      ms(c.Cache.NegTTLMS),
			StaleFor: ms(c.Cache.StaleMS),
		},
	}
}

// keysFor returns the keys that index.trust names for k.
func (s *settings) keysFor(k name.Key) (keys []ed25519.PublicKey) {
	of := k.Name()
	for _, t := range s.trusted {
		if t.suffix == "*" || of == t.suffix || strings.HasSuffix(of, "."+t.suffix) {
			keys = append(keys, t.key)
		}
	}
	return keys
}

// rule returns the rule of the peers' breakers.
func (c BreakerConfig) rule() flow.BreakerRule {
	return flow.BreakerRule{
		Ratio: c.TripThreshold, Min: c.MinSamples, Window: time.Duration(c.ErrorWindowS) * time.Second,
		Cooldown: time.Duration(c.CooldownS) * time.Second, Probes: c.HalfOpenProbes,
		MayFail: min(int(c.TripThreshold*float64(c.HalfOpenProbes)), c.HalfOpenProbes-1),
	}
}

// workers returns the number of workers.
func (c ResolverConfig) workers() int { return cmp.Or(c.Workers, max(16, 8*runtime.GOMAXPROCS(0))) }
