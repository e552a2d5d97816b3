package wallet

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/unit"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// Values of Config.NonceMode.
const (
	NonceStrict    = "strict"    // each nonce is the last one plus 1
	NonceMonotonic = "monotonic" // nonces may skip, by up to NonceSpan; what is skipped is burnt
)

// NonceSpan is how far a monotonic nonce may skip, so that one request cannot lock an account for
// ever.
const NonceSpan = 1_000_000

// Config is the section [wallet].
type Config struct {
	Enabled bool `toml:"enabled" reload:"x"`
	// committers; 0: as many as processors, at least 2
	Workers        int            `toml:"workers" reload:"x"`
	WorkerBurst    int            `toml:"worker_burst" reload:"x"` // jobs a committer takes into one commit
	Limits         LimitsConfig   `toml:"limits" reload:"r"`
	ReqTimeout     unit.Duration  `toml:"req_timeout" reload:"r"`
	DrainDeadline  unit.Duration  `toml:"drain_deadline" reload:"r"`
	IdempotencyTTL unit.Duration  `toml:"idempotency_ttl" reload:"r"`
	MaxAmountPerOp engines.Amount `toml:"max_amount_per_op" reload:"r"`
	// debits of an account in an asset on a UTC day
	DailyCeiling    engines.Amount `toml:"daily_ceiling" reload:"r"`
	MaxAccountTotal engines.Amount `toml:"max_account_total" reload:"r"` // balance and incoming holds of a receiver
	NonceStart      uint64         `toml:"nonce_start" reload:"x"`
	NonceMode       string         `toml:"nonce_mode" reload:"r"`
	// locks over the requests under way
	Shards      int `toml:"shards" reload:"x"`
	BatchMaxOps int `toml:"batch_max_ops" reload:"r"`
	// ops of all batches under way; one client leaves room for a batch
	BatchInflightOps int    `toml:"batch_inflight_ops" reload:"r"`
	MaxOpenHolds     uint64 `toml:"max_open_holds" reload:"r"` // 0: no bound
	// declared at boot and reload, as NAME or NAME:DECIMALS; one that is taken out stays declared
	Assets []string `toml:"assets" reload:"r"`
	// of earlier releases: decimals by asset, which move into the ledger at boot
	Decimals       map[string]int `toml:"decimals" reload:"r"`
	Retry          RetryConfig    `toml:"retry" reload:"r"`
	CircuitBreaker BreakerConfig  `toml:"circuit_breaker" reload:"r"`
}

// LimitsConfig bounds the requests of the service. max_inflight is above the capacity of work_tx,
// so that a full queue refuses before it.
type LimitsConfig struct {
	MaxInflight   int `toml:"max_inflight"`
	RatePerSecond int `toml:"rate_per_second"` // writes of one principal
	Burst         int `toml:"burst"`
	ReadRPS       int `toml:"read_rps"` // 0: no bound
}

// RetryConfig paces the calls of the ledger: after failure n it waits min(base·factorⁿ, max), give
// or take jitter.
type RetryConfig struct {
	Base       unit.Duration `toml:"base"`
	Max        unit.Duration `toml:"max"`
	Factor     float64       `toml:"factor"`
	Jitter     unit.Duration `toml:"jitter"`
	Tries      int           `toml:"tries"`
	RPCTimeout unit.Duration `toml:"rpc_timeout"` // of one try
}

// BreakerConfig says when the ledger is left alone.
type BreakerConfig struct {
	FailureThreshold int           `toml:"failure_threshold"` // failed ops within Window
	Window           unit.Duration `toml:"window"`
	OpenDuration     unit.Duration `toml:"open_duration"`
	HalfOpenMax      int           `toml:"half_open_max"` // probes, of which none may fail
}

// DefaultConfig returns every default.
func DefaultConfig() Config {
	return Config{
		Enabled:          true,
		WorkerBurst:      256,
		Limits:           LimitsConfig{MaxInflight: 1024, RatePerSecond: 1000, Burst: 2000},
		ReqTimeout:       seconds(5),
		DrainDeadline:    seconds(5),
		IdempotencyTTL:   unit.Duration(24 * time.Hour),
		MaxAmountPerOp:   engines.AmountOf(5, 7766279631452241920),               // 10^20
		DailyCeiling:     engines.AmountOf(542, 1864712049423024128),             // 10^22
		MaxAccountTotal:  engines.AmountOf(^uint64(0), ^uint64(0)-1_000_000_000), // 2^128-1 less 10^9
		NonceStart:       1,
		NonceMode:        NonceStrict,
		Shards:           64,
		BatchMaxOps:      4096,
		BatchInflightOps: 16384,
		MaxOpenHolds:     1_000_000,
		Assets:           []string{"ron"},
		Decimals:         map[string]int{},
		Retry: RetryConfig{
			Base: millis(50), Max: seconds(1), Factor: 2, Jitter: millis(20), Tries: 3, RPCTimeout: seconds(1),
		},
		CircuitBreaker: BreakerConfig{
			FailureThreshold: 20,
			Window:           seconds(10),
			OpenDuration:     seconds(5),
			HalfOpenMax:      10,
		},
	}
}

func seconds(n int) unit.Duration { return unit.Duration(time.Duration(n) * time.Second) }
func millis(n int) unit.Duration  { return unit.Duration(time.Duration(n) * time.Millisecond) }

// Validate returns all faults of c, joined.
func (c Config) Validate() error {
	return errors.Join(
		c.validateBounds(),
		c.validateAmounts(),
		c.validateNonces(),
		c.validateAssets(),
		c.Retry.validate(),
		c.CircuitBreaker.validate(),
		unit.Between("req_timeout", c.ReqTimeout, c.Retry.RPCTimeout.D(), time.Minute),
		unit.Between("drain_deadline", c.DrainDeadline, time.Second, 5*time.Second),
		unit.Between("idempotency_ttl", c.IdempotencyTTL, time.Minute, 72*time.Hour),
	)
}

func (c Config) validateBounds() error {
	return errors.Join(unit.Within("workers", c.Workers, 0, 64), unit.Within("worker_burst", c.WorkerBurst, 1, 1024),
		unit.Within("limits.max_inflight", c.Limits.MaxInflight, workCap+1, 65_536),
		unit.Within("limits.rate_per_second", c.Limits.RatePerSecond, 1, 1_000_000),
		unit.Within("limits.burst", c.Limits.Burst, 1, 1_000_000),
		unit.Within("limits.read_rps", c.Limits.ReadRPS, 0, 1_000_000),
		c.validateShards(),
		unit.Within("batch_max_ops", c.BatchMaxOps, 1, MaxBatchOps),
		unit.Within("batch_inflight_ops", c.BatchInflightOps, c.BatchMaxOps, 1<<20))
}

func (c Config) validateShards() error {
	if c.Shards < 1 || c.Shards > 1024 || c.Shards&(c.Shards-1) != 0 {
		return fmt.Errorf("shards = %d: must be a power of two, 1..1024", c.Shards)
	}
	return nil
}

func (c Config) validateAmounts() error {
	var errs []error
	if c.MaxAmountPerOp.IsZero() {
		errs = append(errs, errors.New("max_amount_per_op = 0: must be more"))
	}
	if c.DailyCeiling.Less(c.MaxAmountPerOp) {
		errs = append(
			errs,
			fmt.Errorf("daily_ceiling = %s: must be max_amount_per_op = %s or more", c.DailyCeiling, c.MaxAmountPerOp),
		)
	}
	if c.MaxAccountTotal.Less(c.DailyCeiling) {
		errs = append(
			errs,
			fmt.Errorf("max_account_total = %s: must be daily_ceiling = %s or more", c.MaxAccountTotal, c.DailyCeiling),
		)
	}
	return errors.Join(errs...)
}

func (c Config) validateNonces() error {
	var errs []error
	if c.NonceStart != 1 {
		errs = append(errs, fmt.Errorf("nonce_start = %d: must be 1", c.NonceStart))
	}
	if c.NonceMode != NonceStrict && c.NonceMode != NonceMonotonic {
		errs = append(errs, fmt.Errorf("nonce_mode = %q: must be %s or %s", c.NonceMode, NonceStrict, NonceMonotonic))
	}
	return errors.Join(errs...)
}

// maxAssets bounds the assets of a configuration. Each asset has an issuance account.
const maxAssets = 256

func (c Config) validateAssets() error {
	var errs []error
	if n := len(c.Assets); n < 1 || n > maxAssets {
		errs = append(errs, fmt.Errorf("assets = %d names: must be 1..%d", n, maxAssets))
	}
	for _, a := range c.Assets {
		if _, err := ParseAsset(a); err != nil {
			errs = append(errs, fmt.Errorf("assets = %q: %w", a, err))
		}
	}
	for asset, n := range c.Decimals {
		if err := engines.CheckAsset(asset); err != nil {
			errs = append(errs, fmt.Errorf("decimals = %q: %w", asset, err))
		}
		errs = append(errs, unit.Within("decimals", n, 0, engines.MaxDecimals))
	}
	return errors.Join(errs...)
}

// ParseAsset parses an entry of Config.Assets, NAME or NAME:DECIMALS, to the op that declares the
// asset.
func ParseAsset(s string) (ledger.Op, error) {
	name, decimals, given := strings.Cut(s, ":")
	if err := engines.CheckAsset(name); err != nil {
		return ledger.Op{}, err
	}
	if !given {
		return ledger.Op{Code: record.OpAsset, Asset: name}, nil
	}
	n, err := engines.ParseAmount(decimals)
	if err != nil || record.CheckScale(n) != nil {
		return ledger.Op{}, errors.New("decimals " + ledger.WantDecimals)
	}
	return ledger.Op{Code: record.OpScale, Asset: name, Amount: n}, nil
}

// Declarations returns the ops that declare the assets of c, which is valid. Those of Decimals come
// last, for assets that c or the ledger knows.
func (c Config) Declarations(known func(asset string) bool) []ledger.Op {
	var ops []ledger.Op
	for _, a := range c.Assets {
		op, _ := ParseAsset(a)
		ops = append(ops, op)
	}
	listed := func(asset string) bool {
		return slices.ContainsFunc(ops, func(op ledger.Op) bool { return op.Asset == asset })
	}
	for _, asset := range slices.Sorted(maps.Keys(c.Decimals)) {
		if decimals := engines.AmountOf(0, uint64(c.Decimals[asset])); known(asset) || listed(asset) {
			ops = append(ops, ledger.Op{Code: record.OpScale, Asset: asset, Amount: decimals})
		}
	}
	return ops
}

func (c RetryConfig) validate() error {
	return errors.Join(unit.Between("retry.base", c.Base, time.Millisecond, 10*time.Second),
		unit.Between("retry.max", c.Max, c.Base.D(), time.Minute),
		unit.Between("retry.jitter", c.Jitter, 0, c.Base.D()), unit.Within("retry.tries", c.Tries, 1, 5),
		unit.Between("retry.rpc_timeout", c.RPCTimeout, 10*time.Millisecond, 10*time.Second),
		unit.Within("retry.factor", c.Factor, 1, 10))
}

func (c BreakerConfig) validate() error {
	return errors.Join(unit.Within("circuit_breaker.failure_threshold", c.FailureThreshold, 1, 1_000_000),
		unit.Between("circuit_breaker.window", c.Window, 100*time.Millisecond, 10*time.Minute),
		unit.Between("circuit_breaker.open_duration", c.OpenDuration, 10*time.Millisecond, 10*time.Minute),
		unit.Within("circuit_breaker.half_open_max", c.HalfOpenMax, 1, 1000))
}

// rule returns c as a rule of flow.
func (c BreakerConfig) rule() flow.BreakerRule {
	return flow.BreakerRule{
		Failures: c.FailureThreshold,
		Window:   c.Window.D(),
		Cooldown: c.OpenDuration.D(),
		Probes:   c.HalfOpenMax,
	}
}

// limits returns the bounds that an op carries to the ledger.
func (c *Config) limits() *ledger.Limits {
	return &ledger.Limits{
		PerOp:        c.MaxAmountPerOp,
		Daily:        c.DailyCeiling,
		AccountTotal: c.MaxAccountTotal,
		Monotonic:    c.NonceMode == NonceMonotonic,
		NonceSpan:    NonceSpan,
		OpenHolds:    c.MaxOpenHolds,
	}
}

// settings is a configuration in force with the values that are made from it. It is never changed.
type settings struct {
	Config
	limits *ledger.Limits
	reads  flow.Retrier
}

func newSettings(c *flow.Catalog, cfg Config) *settings {
	return &settings{
		Config: cfg,
		limits: cfg.limits(),
		reads:  flow.Retry(cfg.Retry.delay, cfg.Retry.Tries, transient).Counting(c, service, "read", "svc", ledgerName),
	}
}

// Reload puts a valid configuration in force, for the requests and the calls of the ledger that
// begin from now on. Keys that need a restart keep the value they had. It does not wait.
func (e *Engine) Reload(cfg Config) {
	e.set.Store(newSettings(e.catalog, cfg))
	e.calls.Reload(e.callSpec())
}

// delay returns the wait after failure n, the first being 0: min(base·factorⁿ, max) ± jitter.
func (c RetryConfig) delay(n int) time.Duration {
	d := time.Duration(min(float64(c.Base)*math.Pow(c.Factor, float64(n)), float64(c.Max)))
	if j := c.Jitter.D(); j > 0 {
		d += rand.N(2*j+1) - j
	}
	return d // base is no less than jitter
}
