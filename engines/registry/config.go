package registry

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/unit"
	"ronbox/engines/registry/retain"
	"ronbox/engines/registry/seal"
)

// Config is the section [registry]. No key changes signers or thresholds: those come from signed
// versions only.
type Config struct {
	// false: no tasks and no routes; the rows in the file stay
	Enabled       bool            `toml:"enabled" reload:"x"`
	Origin        string          `toml:"origin" reload:"x"` // name of the log; empty: ronbox.local/<node id>
	Bus           BusConfig       `toml:"bus" reload:"r"`
	Queues        QueuesConfig    `toml:"queues" reload:"x"`
	Limits        LimitsConfig    `toml:"limits" reload:"r"`
	Timeouts      TimeoutsConfig  `toml:"timeouts" reload:"r"`
	DrainDeadline unit.Duration   `toml:"drain_deadline" reload:"r"`
	Proposals     ProposalsConfig `toml:"proposals" reload:"r"`
	Approvals     ApprovalsConfig `toml:"approvals" reload:"r"`
	Verify        VerifyConfig    `toml:"verify" reload:"r"`
	SSE           SSEConfig       `toml:"sse" reload:"r"`
	Bootstrap     BootstrapConfig `toml:"bootstrap" reload:"x"`

	Storage    StorageConfig    `toml:"storage" reload:"r"`
	Checkpoint CheckpointConfig `toml:"checkpoint" reload:"r"`
	Retention  RetentionConfig  `toml:"retention" reload:"r"`
	Witness    WitnessConfig    `toml:"witness" reload:"r"`

	Follow FollowConfig `toml:"follow" reload:"x"`
}

// FollowConfig names the node whose log this node copies. Such a node takes no versions of its own.
type FollowConfig struct {
	URL     string `toml:"url"`     // of that node; empty: this node has a log of its own
	Genesis string `toml:"genesis"` // payload_b3 of version 1 of its log; set with url
	// age of its newest checkpoint from which this node is not ready; at least two of
	// storage.checkpoint_interval
	MaxAge unit.Duration `toml:"max_age" reload:"r"`
}

// StorageConfig sets the pace of archived checkpoints.
type StorageConfig struct {
	// between archived checkpoints, and signatures of an idle log
	CheckpointInterval unit.Duration `toml:"checkpoint_interval"`
}

// CheckpointConfig configures the signing of checkpoints. A checkpoint is published within a second
// of each new version.
type CheckpointConfig struct {
	EveryVersions int    `toml:"every_versions"`          // an archived checkpoint at least every so many versions
	LogKeyPath    string `toml:"log_key_path" reload:"x"` // empty: registry/log.key in the data directory
	// empty: registry/highwater.note there; another disk is better
	HighwaterPath string `toml:"highwater_path" reload:"x"`
}

// RetentionConfig decides which versions may be removed. Versions are removed in whole segments
// that an archived checkpoint covers.
type RetentionConfig struct {
	Policy   string        `toml:"policy"`    // none, by-age or by-count
	MaxAge   unit.Duration `toml:"max_age"`   // of by-age: a segment goes when its last version is older
	MaxCount int           `toml:"max_count"` // of by-count: at least so many versions stay
}

// WitnessConfig configures the requests to witnesses. An archived checkpoint is shown at once, the
// latest one within Interval. The signer set in force names the witnesses.
type WitnessConfig struct {
	Enabled  bool          `toml:"enabled"`
	Timeout  unit.Duration `toml:"timeout"`  // of one call
	Interval unit.Duration `toml:"interval"` // between two checks for a new checkpoint
}

// BusConfig bounds the broadcasts of the registry.
type BusConfig struct {
	ChannelBound int `toml:"channel_bound" reload:"x"` // events that a slow reader may lag before it skips some
	// false: new event streams are refused, and open ones get no version. Versions committed
	// meanwhile are reported as lagged when the next version is committed.
	EmitUpdates bool `toml:"emit_updates"`
}

// QueuesConfig bounds the queues into the pipeline.
type QueuesConfig struct {
	Proposals int `toml:"proposals"`
	Approvals int `toml:"approvals"`
}

// LimitsConfig bounds the requests of the service. Inflight is larger than the queues, so that a
// full queue refuses first.
type LimitsConfig struct {
	RPS      int `toml:"rps"`      // of writes; 0: no bound
	ReadRPS  int `toml:"read_rps"` // 0: no bound
	Inflight int `toml:"inflight"`
}

// TimeoutsConfig limits the deadlines of calls.
type TimeoutsConfig struct {
	Propose unit.Duration `toml:"propose"`
	Approve unit.Duration `toml:"approve"`
	Commit  unit.Duration `toml:"commit"`
}

// ProposalsConfig bounds the pending proposals.
type ProposalsConfig struct {
	TTL        unit.Duration `toml:"ttl"`
	MaxPending int           `toml:"max_pending"`
	MaxPerCap  int           `toml:"max_per_cap"` // per capability
	MaxStack   int           `toml:"max_stack"`   // versions above HEAD
	MaxBytes   unit.Size     `toml:"max_bytes"`   // canonical payload bytes of all pending
}

// ApprovalsConfig bounds the clock skew of signers.
type ApprovalsConfig struct {
	MaxSkew unit.Duration `toml:"max_skew"`
}

// VerifyConfig sets the pace of the deep verifier.
type VerifyConfig struct {
	Slice    unit.Duration `toml:"slice"`
	Period   unit.Duration `toml:"period"`
	FullPass unit.Duration `toml:"full_pass"`
}

// SSEConfig bounds the event streams.
type SSEConfig struct {
	Ping       unit.Duration `toml:"ping"`
	MaxClients int           `toml:"max_clients"`
	MaxPerIP   int           `toml:"max_per_ip"`
	ReplayMax  int           `toml:"replay_max"` // versions that a stream replays at most; beyond it says lagged
}

// BootstrapConfig pins the genesis of the log.
type BootstrapConfig struct {
	TrustRootsHash string `toml:"trust_roots_hash"` // payload_b3 of genesis; empty: any
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		Enabled:       true,
		Bus:           BusConfig{ChannelBound: 1024, EmitUpdates: true},
		Queues:        QueuesConfig{Proposals: 512, Approvals: 512},
		Limits:        LimitsConfig{RPS: 500, Inflight: 1024},
		Timeouts:      TimeoutsConfig{Propose: seconds(2), Approve: seconds(2), Commit: seconds(4)},
		DrainDeadline: seconds(3),
		Proposals: ProposalsConfig{
			TTL: unit.Duration(72 * time.Hour), MaxPending: 256, MaxPerCap: 32, MaxStack: 8, MaxBytes: 64 << 20,
		},
		Approvals: ApprovalsConfig{MaxSkew: unit.Duration(5 * time.Minute)},
		Verify: VerifyConfig{
			Slice: unit.Duration(20 * time.Millisecond), Period: unit.Duration(200 * time.Millisecond),
			FullPass: unit.Duration(24 * time.Hour),
		},
		Storage:    StorageConfig{CheckpointInterval: unit.Duration(10 * time.Minute)},
		Checkpoint: CheckpointConfig{EveryVersions: 256},
		Retention:  RetentionConfig{Policy: retain.All, MaxAge: unit.Duration(30 * 24 * time.Hour), MaxCount: 10_000},
		Witness:    WitnessConfig{Timeout: seconds(1), Interval: seconds(30)},
		Follow:     FollowConfig{MaxAge: unit.Duration(24 * time.Hour)},
		SSE:        SSEConfig{Ping: seconds(15), MaxClients: 256, MaxPerIP: 8, ReplayMax: 1000},
	}
}

func seconds(n int) unit.Duration { return unit.Duration(time.Duration(n) * time.Second) }

// Validate returns all faults of c, joined.
func (c Config) Validate() error {
	return errors.Join(c.validateWords(), c.validateFollow(),
		unit.Within("bus.channel_bound", c.Bus.ChannelBound, 64, 65_536),
		unit.Within("queues.proposals", c.Queues.Proposals, 1, c.Limits.Inflight-1),
		unit.Within("queues.approvals", c.Queues.Approvals, 1, c.Limits.Inflight-1),
		unit.Within("limits.rps", c.Limits.RPS, 0, 1_000_000),
		unit.Within("limits.read_rps", c.Limits.ReadRPS, 0, 1_000_000),
		unit.Within("limits.inflight", c.Limits.Inflight, 2, 65_536),
		unit.Within("proposals.max_pending", c.Proposals.MaxPending, 1, 4096),
		unit.Within("proposals.max_per_cap", c.Proposals.MaxPerCap, 1, c.Proposals.MaxPending),
		unit.Within("proposals.max_stack", c.Proposals.MaxStack, 1, 8),
		unit.Within("proposals.max_bytes", c.Proposals.MaxBytes, 1<<20, 1<<30),
		unit.Within("sse.max_clients", c.SSE.MaxClients, 1, 65_536),
		unit.Within("sse.max_per_ip", c.SSE.MaxPerIP, 1, c.SSE.MaxClients),
		unit.Within("sse.replay_max", c.SSE.ReplayMax, 1, 100_000),
		unit.Between("drain_deadline", c.DrainDeadline, 100*time.Millisecond, 30*time.Second),
		unit.Between("timeouts.propose", c.Timeouts.Propose, time.Millisecond, 5*time.Second),
		unit.Between("timeouts.approve", c.Timeouts.Approve, time.Millisecond, 5*time.Second),
		unit.Between("timeouts.commit", c.Timeouts.Commit, time.Millisecond, 5*time.Second),
		unit.Between("proposals.ttl", c.Proposals.TTL, time.Minute, 30*24*time.Hour),
		unit.Between("approvals.max_skew", c.Approvals.MaxSkew, 0, time.Hour),
		unit.Between("verify.slice", c.Verify.Slice, time.Millisecond, c.Verify.Period.D()/2),
		unit.Between("verify.period", c.Verify.Period, 2*time.Millisecond, time.Minute),
		unit.Between("verify.full_pass", c.Verify.FullPass, time.Minute, 30*24*time.Hour),
		unit.Between("sse.ping", c.SSE.Ping, time.Second, 15*time.Second),
		unit.Between("storage.checkpoint_interval", c.Storage.CheckpointInterval, time.Minute, 24*time.Hour),
		unit.Within("checkpoint.every_versions", c.Checkpoint.EveryVersions, 1, 4096),
		unit.Between("retention.max_age", c.Retention.MaxAge, time.Hour, 100*365*24*time.Hour),
		unit.Within("retention.max_count", c.Retention.MaxCount, 100, 1_000_000_000),
		unit.Between("witness.timeout", c.Witness.Timeout, 10*time.Millisecond, seal.MaxWitnessTimeout),
		unit.Between("witness.interval", c.Witness.Interval, time.Second, time.Minute))
}

// validateFollow returns the faults of the section follow, and of the keys that it excludes.
func (c Config) validateFollow() (err error) {
	f := c.Follow
	if f.URL == "" && f.Genesis == "" {
		return unit.Between("follow.max_age", f.MaxAge, minFollowAge, maxFollowAge)
	}
	err = unit.Between("follow.max_age", f.MaxAge, 2*c.Storage.CheckpointInterval.D(), maxFollowAge)
	if bad := checkHub(f.URL); bad != nil {
		err = errors.Join(err, fmt.Errorf("follow.url = %q: %w", f.URL, bad))
	}
	if genesis, bad := b3.Parse(f.Genesis); bad != nil {
		err = errors.Join(err,
			fmt.Errorf("follow.genesis = %q: must be the payload_b3 of version 1: %w", f.Genesis, bad))
	} else if genesis.IsZero() {
		err = errors.Join(err, fmt.Errorf("follow.genesis = %q: no payload has this hash", f.Genesis))
	}
	if roots := c.Bootstrap.TrustRootsHash; roots != "" && roots != f.Genesis {
		err = errors.Join(err, fmt.Errorf("bootstrap.trust_roots_hash = %q: must be empty or follow.genesis", roots))
	}
	return err
}

// Bounds of follow.max_age. The lower one is twice the least storage.checkpoint_interval.
const (
	minFollowAge = 2 * time.Minute
	maxFollowAge = 365 * 24 * time.Hour
)

// checkHub returns an error unless raw is an https URL, or an http URL of this host, without a
// path.
func checkHub(raw string) error {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" ||
		u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http" {
		return errors.New("must be a URL such as https://hub.example:8443")
	}
	host := u.Hostname()
	at, err := netip.ParseAddr(host)
	if u.Scheme == "http" && host != "localhost" && (err != nil || !at.IsLoopback()) {
		return errors.New("must be https: only a node on this host is followed without TLS")
	}
	return nil
}

// validateWords returns the faults of the values that are not numbers.
func (c Config) validateWords() (err error) {
	if strings.ContainsAny(c.Origin, ": +\t\r\n") || len(c.Origin) > 200 {
		err = fmt.Errorf(
			"origin = %q: must be a URL without schema, at most 200 bytes, without ':', '+' or space",
			c.Origin,
		)
	}
	if p := c.Retention.Policy; p != retain.All && p != retain.ByAge && p != retain.ByCount {
		err = errors.Join(err,
			fmt.Errorf("retention.policy = %q: must be %s, %s or %s", p, retain.All, retain.ByAge, retain.ByCount))
	}
	if roots := c.Bootstrap.TrustRootsHash; roots != "" {
		if _, bad := b3.Parse(roots); bad != nil {
			err = errors.Join(err, fmt.Errorf("bootstrap.trust_roots_hash: %w", bad))
		}
	}
	return err
}
