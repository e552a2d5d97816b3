package ledger

import (
	"errors"
	"fmt"
	"time"

	"ronbox/appliance/unit"
	"ronbox/engines/ledger/idem"
)

// Values of Config.VerifyOnOpen.
const (
	VerifyNone = "none"
	VerifyTail = "tail" // the newest 1024 batches, of 16,384 records together at most
	VerifyFull = "full"
)

// Config is the section [ledger].
type Config struct {
	StallAfter       unit.Duration `toml:"stall_after" reload:"r"`        // a call that takes longer makes the wallet unready
	FlushEvery       unit.Duration `toml:"flush_every" reload:"r"`        // between two slices of changed states, while there are some
	FlushSlice       int           `toml:"flush_slice" reload:"r"`        // states a slice writes
	DirtyMaxAccounts int           `toml:"dirty_max_accounts" reload:"r"` // changed states above which bursts write slices too
	SlotWidth        unit.Duration `toml:"slot_width" reload:"r"`         // time a slot of the idempotency index covers
	SlotMax          int           `toml:"slot_max" reload:"r"`           // keys after which a slot ends early
	VerifyOnOpen     string        `toml:"verify_on_open" reload:"x"`     // none, tail, full

	// KeyTTL is how long idempotency keys count: a slot is dropped once all its keys are older. It is not a key of this section; the
	// owner takes it from whoever sets it on the ops.
	KeyTTL unit.Duration `toml:"-" reload:"-"`
}

// DefaultConfig gives every default.
func DefaultConfig() Config {
	return Config{
		StallAfter:       unit.Duration(150 * time.Millisecond),
		FlushEvery:       unit.Duration(50 * time.Millisecond),
		FlushSlice:       512,
		DirtyMaxAccounts: 262_144,
		SlotWidth:        unit.Duration(15 * time.Minute),
		SlotMax:          524_288,
		VerifyOnOpen:     VerifyTail,
		KeyTTL:           unit.Duration(24 * time.Hour),
	}
}

func (c *Config) cut() idem.Cut { return idem.Cut{Width: c.SlotWidth.D(), Max: c.SlotMax} }

// Validate joins every fault of c.
func (c Config) Validate() error {
	return errors.Join(
		unit.Between("stall_after", c.StallAfter, 50*time.Millisecond, 2*time.Second),
		unit.Between("flush_every", c.FlushEvery, time.Millisecond, 10*time.Second),
		unit.Within("flush_slice", c.FlushSlice, 1, 65_536),
		unit.Within("dirty_max_accounts", c.DirtyMaxAccounts, 1, 16<<20),
		unit.Between("slot_width", c.SlotWidth, time.Minute, time.Hour),
		unit.Within("slot_max", c.SlotMax, 1, 4<<20),
		c.validateVerify(),
	)
}

func (c Config) validateVerify() error {
	switch c.VerifyOnOpen {
	case VerifyNone, VerifyTail, VerifyFull:
		return nil
	}
	return fmt.Errorf("verify_on_open = %q: must be none, tail or full", c.VerifyOnOpen)
}
