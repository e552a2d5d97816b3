package edge

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"ronbox/appliance/unit"
)

// The modes.
const (
	ModeOffline = "offline"
	ModeLive    = "live"
)

// Config is the section [edge].
type Config struct {
	Enabled       bool          `toml:"enabled" reload:"x"`                   // false: no tasks and no routes; what is stored stays
	Mode          string        `toml:"mode" reload:"r" oneof:"offline live"` // "offline": packs and what is stored; "live": what is missing is fetched
	PacksDir      string        `toml:"packs_dir" reload:"x"`                 // of the pack files; "": packs in the data directory
	PublicURL     string        `toml:"public_url" reload:"r"`                // scheme and host of tile URLs; "": those of the request
	Allow         []string      `toml:"allow" reload:"r"`                     // hosts that are fetched from: a DNS name or localhost, ":port" if it is not 443
	AllowPrivate  []string      `toml:"allow_private" reload:"r"`             // networks that are called although they are not public, as CIDR
	CAFile        string        `toml:"ca_file" reload:"r"`                   // certificates that hosts are trusted by, PEM; "": the system's
	Ingress       IngressConfig `toml:"ingress" reload:"r"`
	Queues        QueuesConfig  `toml:"queues" reload:"x"`
	Retry         RetryConfig   `toml:"retry" reload:"r"`
	Fill          FillConfig    `toml:"fill" reload:"x"`
	CAS           CASConfig     `toml:"cas" reload:"r"`
	Packs         PacksConfig   `toml:"packs" reload:"x"`
	Scrub         ScrubConfig   `toml:"scrub" reload:"r"`
	DrainDeadline unit.Duration `toml:"drain_deadline" reload:"r"` // that running fills get once the node drains
}

// IngressConfig bounds requests.
type IngressConfig struct {
	TimeoutSecs int `toml:"timeout_secs"` // to the first byte of an answer: what a request waits for a fill, and what a try of one lasts
	MaxInflight int `toml:"max_inflight"` // requests at one time, to the last byte; a quarter of them of one network
	RPSLimit    int `toml:"rps_limit"`    // a second, as many at once: requests that begin or join a fill, and those that change something
}

// QueuesConfig bounds the queue of fills that wait for a worker; beyond it they are refused.
type QueuesConfig struct {
	WorkTX int `toml:"work_tx"`
}

// RetryConfig says how calls of other hosts are tried again.
type RetryConfig struct {
	LiveFill RetryRule `toml:"live_fill"`
}

// RetryRule waits min(max_ms, base_ms·2ⁿ) + U[0, base_ms] after failure n, the first being 0.
type RetryRule struct {
	BaseMS     int  `toml:"base_ms"`
	MaxMS      int  `toml:"max_ms"`
	MaxRetries int  `toml:"max_retries"` // tries, the first included
	Jitter     bool `toml:"jitter"`      // false: without U
}

// FillConfig bounds the fills.
type FillConfig struct {
	Workers        int       `toml:"workers"`          // fills at one time
	MaxObjectBytes unit.Size `toml:"max_object_bytes"` // of one object; a longer one is refused
}

// CASConfig bounds the content store.
type CASConfig struct {
	MaxBytes unit.Size `toml:"max_bytes"` // of all objects; beyond it the least recently used leave
	MinFree  unit.Size `toml:"min_free"`  // of the disk, that objects leave free, with up to 64 MiB of headroom; at least store.min_free
	MaxURLs  int       `toml:"max_urls"`  // that lead to objects: each has a row, of up to 4 KiB, in the file of the node
}

// ScrubConfig is how what is stored is read again, so that damage is found before it is asked for.
type ScrubConfig struct {
	Every unit.Duration `toml:"every"` // from the end of one run to the begin of the next; 0: never
	Rate  unit.Size     `toml:"rate"`  // bytes of objects a second
}

// Bounds that are no keys.
const (
	postTry     = 60 * time.Second // that a try of a fill lasts that a POST has begun
	negativeFor = 60 * time.Second // that a host's 404 is remembered
	faultyFor   = 5 * time.Second  // that a host's 5xx is remembered against its path: a page asks again in the meantime, the host is asked once
)

// DefaultConfig gives every default.
func DefaultConfig() Config {
	return Config{
		Enabled:       true,
		Mode:          ModeOffline,
		Allow:         []string{},
		AllowPrivate:  []string{},
		Ingress:       IngressConfig{TimeoutSecs: 5, MaxInflight: 512, RPSLimit: 500},
		Queues:        QueuesConfig{WorkTX: 512},
		Retry:         RetryConfig{LiveFill: RetryRule{BaseMS: 50, MaxMS: 800, MaxRetries: 3, Jitter: true}},
		Fill:          FillConfig{Workers: 8, MaxObjectBytes: 256 << 20},
		CAS:           CASConfig{MaxBytes: 10 << 30, MinFree: 512 << 20, MaxURLs: 200_000},
		Packs:         defaultPacksConfig(),
		Scrub:         ScrubConfig{Every: unit.Duration(7 * 24 * time.Hour), Rate: 8 << 20},
		DrainDeadline: unit.Duration(3 * time.Second),
	}
}

// timeout is what a request waits for a fill, and what a try of one lasts.
func (c *Config) timeout() time.Duration { return time.Duration(c.Ingress.TimeoutSecs) * time.Second }

// Validate joins every fault of c.
func (c Config) Validate() error {
	r := c.Retry.LiveFill
	return errors.Join(
		c.validateMode(),
		c.validateHosts(),
		unit.Within("ingress.timeout_secs", c.Ingress.TimeoutSecs, 1, 30),
		unit.Within("ingress.max_inflight", c.Ingress.MaxInflight, 1, 65_536),
		unit.Within("ingress.rps_limit", c.Ingress.RPSLimit, 1, 1_000_000),
		unit.Within("queues.work_tx", c.Queues.WorkTX, 1, 65_536),
		unit.Within("retry.live_fill.base_ms", r.BaseMS, 1, r.MaxMS),
		unit.Within("retry.live_fill.max_ms", r.MaxMS, 1, 10_000),
		unit.Within("retry.live_fill.max_retries", r.MaxRetries, 1, 5),
		unit.Within("fill.workers", c.Fill.Workers, 1, 256),
		unit.Within("fill.max_object_bytes", c.Fill.MaxObjectBytes, 1<<10, c.CAS.MaxBytes),
		unit.Within("cas.max_bytes", c.CAS.MaxBytes, 1<<10, 1<<50),
		unit.Within("cas.min_free", c.CAS.MinFree, 0, 1<<50),
		unit.Within("cas.max_urls", c.CAS.MaxURLs, writeBurst, 10_000_000),
		c.Packs.validate(),
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

// maxHosts bounds edge.allow: each host has a breaker, connections and metrics of its own.
const maxHosts = 256

func (c Config) validateHosts() (err error) {
	for i, host := range c.Allow {
		bad := checkHost(host)
		if slices.Contains(c.Allow[:i], host) {
			bad = errors.New("is named twice")
		}
		if bad != nil {
			err = errors.Join(err, fmt.Errorf("allow = %q: %w", host, bad))
		}
	}
	u, bad := url.Parse(cmp.Or(c.PublicURL, "http://localhost"))
	if bad != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery+u.Fragment != "" {
		err = errors.Join(err, fmt.Errorf("public_url = %q: must be http:// or https://, and a host", c.PublicURL))
	}
	_, bad = c.privateNets()
	return errors.Join(err, bad)
}

// privateNets are the networks of allow_private.
func (c Config) privateNets() (nets []netip.Prefix, err error) {
	for _, text := range c.AllowPrivate {
		p, bad := netip.ParsePrefix(text)
		if bad != nil || p.Masked() != p {
			err = errors.Join(err, fmt.Errorf("allow_private = %q: must be a network such as 10.0.0.0/8", text))
		}
		nets = append(nets, p)
	}
	return nets, err
}
