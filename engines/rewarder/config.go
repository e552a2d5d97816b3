package rewarder

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"ronbox/appliance/unit"
	"ronbox/engines/rewarder/record"
)

// Config is the section [rewarder].
type Config struct {
	// false: no tasks and no routes; rows in the file stay
	Enabled       bool              `toml:"enabled" reload:"x"`
	EpochDuration unit.Duration     `toml:"epoch_duration" reload:"r"`
	Concurrency   ConcurrencyConfig `toml:"concurrency" reload:"x"`
	Shard         ShardConfig       `toml:"shard" reload:"r"`
	ReadTimeout   unit.Duration     `toml:"read_timeout" reload:"r"` // of one call to the ledger
	DrainDeadline unit.Duration     `toml:"drain_deadline" reload:"r"`
	Limits        LimitsConfig      `toml:"limits" reload:"r"`
	ArtifactDir   string            `toml:"artifact_dir" reload:"x"` // "": rewarder in the data directory
	Inputs        InputsConfig      `toml:"inputs" reload:"r"`
	TrustKeys     []string          `toml:"policy_trust_keys" reload:"r"`
	Quorum        int               `toml:"policy_quorum" reload:"r"` // signatures by distinct trusted keys
}

// ConcurrencyConfig bounds concurrent work.
type ConcurrencyConfig struct {
	ComputeWorkers int `toml:"compute_workers"`
	IOInflight     int `toml:"io_inflight"` // concurrent calls to the ledger, of which at most 8 settle
}

// ShardConfig sets the number of shards of a run.
type ShardConfig struct {
	Shards int `toml:"shards"` // must be 1
}

func (c ShardConfig) validate() error {
	if c.Shards != 1 {
		return fmt.Errorf(
			"shard.shards = %d: must be 1: one worker computes a run; "+
				"concurrency.compute_workers sets how many runs are computed at once", c.Shards)
	}
	return nil
}

// LimitsConfig bounds the requests of the service. Inflight is larger than work_req, so that the
// queue itself refuses requests first.
type LimitsConfig struct {
	Inflight     int `toml:"inflight"`
	RPS          int `toml:"rps"`
	Burst        int `toml:"burst"`
	PerTenantRPS int `toml:"per_tenant_rps"`
	ReadRPS      int `toml:"read_rps"` // 0: no bound
}

// InputsConfig bounds the uploads of usage that no run uses. Each upload counts for at least 64
// KiB, which also bounds their number.
type InputsConfig struct {
	Keep        unit.Duration `toml:"keep"`                // time to live of an unsealed upload after its last part
	MaxPerOwner unit.Size     `toml:"max_bytes_per_owner"` // of one principal of a tenant
	MaxBytes    unit.Size     `toml:"max_bytes"`           // of all uploads
}

// DefaultConfig returns the default configuration.
func DefaultConfig() Config {
	return Config{
		Enabled:       true,
		EpochDuration: unit.Duration(time.Hour),
		Concurrency:   ConcurrencyConfig{ComputeWorkers: 4, IOInflight: 64},
		Shard:         ShardConfig{Shards: 1},
		ReadTimeout:   unit.Duration(5 * time.Second),
		DrainDeadline: unit.Duration(3 * time.Second),
		Limits:        LimitsConfig{Inflight: 1024, RPS: 500, Burst: 200, PerTenantRPS: 100},
		TrustKeys:     []string{},
		Quorum:        1,
		// A million actors with five metrics take 200 MB. All uploads may take an eighth of
		// store.max_bytes.
		Inputs: InputsConfig{Keep: unit.Duration(7 * 24 * time.Hour), MaxPerOwner: 256 << 20, MaxBytes: 1 << 30},
	}
}

// Validate returns all faults of c, joined.
func (c Config) Validate() error {
	const most = 1_000_000 // per second; higher values would not limit anything
	errs := []error{
		unit.Between("epoch_duration", c.EpochDuration, time.Minute, 366*24*time.Hour),
		unit.Within("concurrency.compute_workers", c.Concurrency.ComputeWorkers, 1, 256),
		unit.Within("concurrency.io_inflight", c.Concurrency.IOInflight, 1, 4096),
		c.Shard.validate(),
		unit.Between("read_timeout", c.ReadTimeout, 10*time.Millisecond, time.Minute),
		unit.Between("drain_deadline", c.DrainDeadline, time.Second, 5*time.Second),
		unit.Within("limits.inflight", c.Limits.Inflight, queueCap+1, 65536),
		unit.Within("limits.rps", c.Limits.RPS, 0, most),
		unit.Within("limits.burst", c.Limits.Burst, 1, most),
		unit.Within("limits.per_tenant_rps", c.Limits.PerTenantRPS, 0, most),
		unit.Within("limits.read_rps", c.Limits.ReadRPS, 0, most),
		unit.Within("policy_quorum", c.Quorum, 1, max(1, len(c.TrustKeys))),
		unit.Between("inputs.keep", c.Inputs.Keep, time.Hour, 366*24*time.Hour),
		unit.Within("inputs.max_bytes_per_owner", c.Inputs.MaxPerOwner, 1<<20, 1<<40),
		unit.Within("inputs.max_bytes", c.Inputs.MaxBytes, c.Inputs.MaxPerOwner, 1<<40),
	}
	for i, k := range c.TrustKeys {
		if slices.Contains(c.TrustKeys[:i], k) {
			errs = append(errs,
				fmt.Errorf("policy_trust_keys: number %d repeats another: a quorum counts each key once", i))
		}
		if err := record.CheckKid(k); err != nil {
			errs = append(errs, fmt.Errorf("policy_trust_keys: number %d %w", i, err))
		}
	}
	return errors.Join(errs...)
}
