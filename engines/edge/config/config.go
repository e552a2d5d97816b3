package config

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"ronbox/appliance/unit"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/pack"
)

// The modes of the edge.
const (
	ModeOffline = "offline"
	ModeLive    = "live"
)

// Config is the section [edge].
type Config struct {
	// If false, the edge has no tasks and no routes. Stored objects and packs stay on the disk.
	Enabled bool `toml:"enabled" reload:"x"`
	// "offline" serves packs and stored objects; "live" also fetches missing objects.
	Mode string `toml:"mode" reload:"r" oneof:"offline live"`
	// The folder of pack files. "" means packs in the data directory.
	PacksDir string `toml:"packs_dir" reload:"x"`
	// The scheme and host of tile URLs. "" means those of the request or of a trusted proxy.
	PublicURL string `toml:"public_url" reload:"r"`
	// Pages of any origin may read what the edge serves without a token.
	CORS bool `toml:"cors" reload:"r"`
	// The hosts to fetch from: DNS names or localhost, with ":port" if the port is not 443.
	Allow []string `toml:"allow" reload:"r"`
	// Networks in CIDR form that may be called although they are not public.
	AllowPrivate []string `toml:"allow_private" reload:"r"`
	// A PEM file of the root certificates for the hosts. "" means those of the system.
	CAFile        string        `toml:"ca_file" reload:"r"`
	Ingress       IngressConfig `toml:"ingress" reload:"r"`
	Queues        QueuesConfig  `toml:"queues" reload:"x"`
	Retry         RetryConfig   `toml:"retry" reload:"r"`
	Fill          FillConfig    `toml:"fill" reload:"x"`
	Cache         CacheConfig   `toml:"cache" reload:"r"`
	CAS           CASConfig     `toml:"cas" reload:"r"`
	Packs         pack.Config   `toml:"packs" reload:"x"`
	Extract       ExtractConfig `toml:"extract" reload:"r"`
	Style         StyleConfig   `toml:"style" reload:"r"`
	Scrub         ScrubConfig   `toml:"scrub" reload:"r"`
	DrainDeadline unit.Duration `toml:"drain_deadline" reload:"r"` // for running fills, from the start of draining
}

// IngressConfig bounds the requests to the edge.
type IngressConfig struct {
	// The longest wait of a request for a fill, and the longest try of such a fill, in seconds.
	TimeoutSecs int `toml:"timeout_secs"`
	MaxInflight int `toml:"max_inflight"` // concurrent requests, of which one network may hold a quarter
	// Requests a second that begin or join a fill, or that change something; also the burst.
	RPSLimit int `toml:"rps_limit"`
	// Bounds of a request's body that lower those of the section [server]. 0 means those.
	BodyBytes          unit.Size `toml:"body_bytes"`           // before decompression
	DecompressMaxRatio int       `toml:"decompress_max_ratio"` // decompressed size by compressed size
	DecompressAbsBytes unit.Size `toml:"decompress_abs_bytes"` // after decompression
}

// QueuesConfig bounds the queue of the fills that wait for a worker. Further fills are refused.
type QueuesConfig struct {
	WorkTX int `toml:"work_tx"`
}

// RetryConfig describes the retries of calls to other hosts.
type RetryConfig struct {
	LiveFill RetryRule `toml:"live_fill"`
}

// RetryRule waits min(max_ms, base_ms·2ⁿ) + U[0, base_ms] after failure n, counted from 0.
type RetryRule struct {
	BaseMS     int  `toml:"base_ms"`
	MaxMS      int  `toml:"max_ms"`
	MaxRetries int  `toml:"max_retries"` // all tries, with the first one
	Jitter     bool `toml:"jitter"`      // if false, U is left out
}

// FillConfig bounds fills.
type FillConfig struct {
	Workers        int       `toml:"workers"`          // concurrent fills
	MaxObjectBytes unit.Size `toml:"max_object_bytes"` // of one object; a longer one is refused
	// How long a try of a POST may receive no byte. Such a try lasts at most an hour.
	Idle unit.Duration `toml:"idle"`
	// Bytes of interrupted fetches that are kept for 2 minutes for the next try. 0 keeps none.
	PartialBytes unit.Size `toml:"partial_bytes"`
	// "strong" refuses an object without a strong ETag. "weak" also stores one with a weak ETag,
	// whose fetch is never resumed.
	ETag string `toml:"etag" oneof:"strong weak"`
}

// Values of edge.fill.etag.
const (
	ETagStrong = "strong"
	ETagWeak   = "weak"
)

// CacheConfig describes when a stored object of a host is asked for again, in live mode.
type CacheConfig struct {
	Fresh    unit.Duration `toml:"fresh"`    // freshness of an object whose host names none
	Wait     unit.Duration `toml:"wait"`     // the longest wait of a request for a host that demands to be asked
	Interval unit.Duration `toml:"interval"` // requests have a URL asked for at most once in this time
	// If true, a stale object is refused with 504 where RFC 9111 forbids it and the host is silent.
	Strict bool `toml:"strict"`
}

func (c CacheConfig) validate() error {
	return errors.Join(
		unit.Between("cache.fresh", c.Fresh, 0, 365*24*time.Hour),
		unit.Between("cache.wait", c.Wait, 10*time.Millisecond, 30*time.Second),
		unit.Between("cache.interval", c.Interval, 0, time.Hour),
	)
}

// CASConfig bounds the content store.
type CASConfig struct {
	MaxBytes unit.Size `toml:"max_bytes"` // of all objects; beyond it the least recently used are evicted
	// The space that objects leave free on the disk, in addition to up to 64 MiB of headroom. It is
	// at least store.min_free.
	MinFree unit.Size `toml:"min_free"`
	// The most bytes of pinned objects. 0 means half of max_bytes. At most half of max_urls may be
	// pinned.
	MaxPinned unit.Size `toml:"max_pinned"`
	// URLs that lead to objects. Each has a row of up to 4 KiB in the file of the node.
	MaxURLs int `toml:"max_urls"`
}

// ExtractConfig bounds the extracts of packs at hosts.
type ExtractConfig struct {
	MaxTiles int       `toml:"max_tiles"` // entries of one extract, about 64 bytes of memory each
	Rate     unit.Size `toml:"rate"`      // bytes a second of all; 0 is no limit
}

func (c ExtractConfig) validate() error {
	var rate error
	if c.Rate != 0 {
		rate = unit.Within("extract.rate", c.Rate, 16<<10, 10<<30)
	}
	return errors.Join(rate, unit.Within("extract.max_tiles", c.MaxTiles, 1, 20_000_000))
}

// StyleConfig describes the styles of packs.
type StyleConfig struct {
	// The URL of glyphs with {fontstack} and {range}, which MapLibre Native needs for labels. ""
	// means none: MapLibre GL JS draws labels with the fonts of the reader.
	Glyphs string `toml:"glyphs"`
}

func (c StyleConfig) validate() error {
	if c.Glyphs == "" {
		return nil
	}
	u, err := url.Parse(c.Glyphs)
	if err != nil || !webURL(u) || !strings.Contains(c.Glyphs, "{fontstack}") ||
		!strings.Contains(c.Glyphs, "{range}") {
		return fmt.Errorf("style.glyphs = %q: must be http:// or https://, a host, and a path with {fontstack} "+
			"and {range}", c.Glyphs)
	}
	return nil
}

// webURL reports whether u is a URL of http or https with a host and without a user.
func webURL(u *url.URL) bool {
	return (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil && u.Fragment == ""
}

// ScrubConfig describes the regular verification of stored content.
type ScrubConfig struct {
	Every unit.Duration `toml:"every"` // from the end of a run to the start of the next; 0 means never
	Rate  unit.Size     `toml:"rate"`  // bytes of objects a second
}

// DefaultConfig returns the default of every key.
func DefaultConfig() Config {
	return Config{
		Enabled:      true,
		Mode:         ModeOffline,
		CORS:         true,
		Allow:        []string{},
		AllowPrivate: []string{},
		Ingress:      IngressConfig{TimeoutSecs: 5, MaxInflight: 512, RPSLimit: 500},
		Queues:       QueuesConfig{WorkTX: 512},
		Retry:        RetryConfig{LiveFill: RetryRule{BaseMS: 50, MaxMS: 800, MaxRetries: 3, Jitter: true}},
		Fill: FillConfig{
			Workers:        8,
			MaxObjectBytes: 256 << 20,
			Idle:           unit.Duration(30 * time.Second),
			PartialBytes:   512 << 20,
			ETag:           ETagStrong,
		},
		Cache: CacheConfig{
			Fresh:    unit.Duration(24 * time.Hour),
			Wait:     unit.Duration(time.Second),
			Interval: unit.Duration(time.Second),
		},
		CAS:           CASConfig{MaxBytes: 10 << 30, MinFree: 512 << 20, MaxURLs: 200_000},
		Packs:         pack.DefaultConfig(),
		Extract:       ExtractConfig{MaxTiles: 2_000_000},
		Scrub:         ScrubConfig{Every: unit.Duration(7 * 24 * time.Hour), Rate: 8 << 20},
		DrainDeadline: unit.Duration(3 * time.Second),
	}
}

// Timeout returns the longest wait of a request for a fill, and the longest try of such a fill.
func (c *Config) Timeout() time.Duration { return time.Duration(c.Ingress.TimeoutSecs) * time.Second }

// Validate joins all faults of c.
func (c Config) Validate() error {
	r := c.Retry.LiveFill
	return errors.Join(
		c.validateMode(),
		c.validateHosts(),
		unit.Within("ingress.timeout_secs", c.Ingress.TimeoutSecs, 1, 30),
		unit.Within("ingress.max_inflight", c.Ingress.MaxInflight, 1, 65_536),
		c.validateInflight(),
		unit.Within("ingress.rps_limit", c.Ingress.RPSLimit, 1, 1_000_000),
		c.Ingress.validateBody(),
		unit.Within("queues.work_tx", c.Queues.WorkTX, 1, 65_536),
		unit.Within("retry.live_fill.base_ms", r.BaseMS, 1, r.MaxMS),
		unit.Within("retry.live_fill.max_ms", r.MaxMS, 1, 10_000),
		unit.Within("retry.live_fill.max_retries", r.MaxRetries, 1, 5),
		unit.Within("fill.workers", c.Fill.Workers, 1, 256),
		unit.Within("fill.max_object_bytes", c.Fill.MaxObjectBytes, 1<<10, c.CAS.MaxBytes),
		unit.Between("fill.idle", c.Fill.Idle, time.Second, 10*time.Minute),
		unit.Within("fill.partial_bytes", c.Fill.PartialBytes, 0, 1<<50),
		c.Fill.validateETag(),
		c.Cache.validate(),
		unit.Within("cas.max_bytes", c.CAS.MaxBytes, 1<<10, 1<<50),
		unit.Within("cas.min_free", c.CAS.MinFree, 0, 1<<50),
		// Eviction frees a tenth of max_bytes at a time.
		unit.Within("cas.max_pinned", c.CAS.MaxPinned, 0, c.CAS.MaxBytes/10*9),
		unit.Within("cas.max_urls", c.CAS.MaxURLs, WriteBurst, 10_000_000),
		c.Packs.Validate(),
		c.Extract.validate(),
		c.Style.validate(),
		c.Scrub.validate(),
		unit.Between("drain_deadline", c.DrainDeadline, 100*time.Millisecond, 30*time.Second),
	)
}

func (c ScrubConfig) validate() error {
	var every error
	if c.Every != 0 {
		every = unit.Between("scrub.every", c.Every, time.Hour, 365*24*time.Hour)
	}
	return errors.Join(every, unit.Within("scrub.rate", c.Rate, 64<<10, 1<<40))
}

func (c FillConfig) validateETag() error {
	if c.ETag != ETagStrong && c.ETag != ETagWeak {
		return fmt.Errorf("fill.etag = %q: must be %s or %s", c.ETag, ETagStrong, ETagWeak)
	}
	return nil
}

// validateBody checks the bounds that are not 0.
func (c IngressConfig) validateBody() error {
	var errs []error
	if c.BodyBytes != 0 {
		errs = append(errs, unit.Within("ingress.body_bytes", c.BodyBytes, 1<<10, 64<<20))
	}
	if c.DecompressMaxRatio != 0 {
		errs = append(errs, unit.Within("ingress.decompress_max_ratio", c.DecompressMaxRatio, 1, 1000))
	}
	if c.DecompressAbsBytes != 0 {
		errs = append(errs, unit.Within("ingress.decompress_abs_bytes", c.DecompressAbsBytes, 1<<10, 1<<30))
	}
	return errors.Join(errs...)
}

// validateInflight refuses a queue that can never be full: each waiting fill has a request in
// flight.
func (c Config) validateInflight() error {
	if in, queue := c.Ingress.MaxInflight, c.Queues.WorkTX; in > 0 && in < queue {
		return fmt.Errorf("ingress.max_inflight = %d: must be at least queues.work_tx = %d, "+
			"because each waiting fill has a request in flight", in, queue)
	}
	return nil
}

func (c Config) validateMode() error {
	switch {
	case c.Mode != ModeOffline && c.Mode != ModeLive:
		return fmt.Errorf("mode = %q: must be %s or %s", c.Mode, ModeOffline, ModeLive)
	case c.Mode == ModeLive && len(c.Allow) == 0:
		return fmt.Errorf("allow = []: must name the hosts that mode = %q fetches from", ModeLive)
	case len(c.Allow) > maxHosts:
		return fmt.Errorf("allow: names %d hosts, at most %d", len(c.Allow), maxHosts)
	}
	return nil
}

// WriteBurst is the number of objects that the writer of the content store installs together. Each
// needs a URL.
const WriteBurst = 64

// maxHosts bounds edge.allow: each host has its own breaker, connections and metrics.
const maxHosts = 256

func (c Config) validateHosts() (err error) {
	for i, host := range c.Allow {
		bad := asset.CheckHost(host)
		if slices.Contains(c.Allow[:i], host) {
			bad = errors.New("is named twice")
		}
		if bad != nil {
			err = errors.Join(err, fmt.Errorf("allow = %q: %w", host, bad))
		}
	}
	u, bad := url.Parse(cmp.Or(c.PublicURL, "http://localhost"))
	if bad != nil || !webURL(u) || u.RawQuery != "" {
		err = errors.Join(err, fmt.Errorf("public_url = %q: must be http:// or https://, and a host", c.PublicURL))
	}
	_, bad = c.PrivateNets()
	return errors.Join(err, bad)
}

// PrivateNets returns the networks of allow_private.
func (c Config) PrivateNets() (nets []netip.Prefix, err error) {
	for _, text := range c.AllowPrivate {
		p, bad := netip.ParsePrefix(text)
		if bad != nil || p.Masked() != p {
			err = errors.Join(err, fmt.Errorf("allow_private = %q: must be a network such as 10.0.0.0/8", text))
		}
		nets = append(nets, p)
	}
	return nets, err
}

// pinShare is the share that may be pinned: max_bytes / pinShare unless edge.cas.max_pinned is
// set, and max_urls / pinShare.
const pinShare = 2

// PinCaps returns how many bytes and URLs may be pinned.
func (c CASConfig) PinCaps() (bytes, urls int64) {
	bytes = c.MaxPinned.Bytes()
	if bytes == 0 {
		bytes = c.MaxBytes.Bytes() / pinShare
	}
	return bytes, int64(c.MaxURLs) / pinShare
}

// mostHeadroom is four growth steps of the database file.
const mostHeadroom = 64 << 20

// Headroom returns the bytes that objects leave free in addition to min_free. The database may
// grow into it while the edge evicts, before the database reaches its own floor of at most
// min_free.
func (c CASConfig) Headroom() int64 { return min(c.MinFree.Bytes()/4, mostHeadroom) }

// After returns the pause after failure n: min(max_ms, base_ms·2ⁿ) + U[0, base_ms].
func (r RetryRule) After(n int) time.Duration {
	pause := min(r.MaxMS, r.BaseMS<<min(n, 16))
	if r.Jitter {
		pause += rand.IntN(r.BaseMS + 1)
	}
	return time.Duration(pause) * time.Millisecond
}
