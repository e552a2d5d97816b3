package pack

import (
	"errors"
	"time"

	"ronbox/appliance/unit"
)

// Config bounds the resources that one pack may use.
type Config struct {
	StatementTimeout unit.Duration `toml:"statement_timeout"` // to open an MBTiles pack or to read one of its tiles
	VerifyBase       unit.Duration `toml:"verify_base"`       // allowed for the check of any pack
	VerifyRate       unit.Size     `toml:"verify_rate"`       // bytes that add a second to that allowance
	// Bytes a second that the scrub of published packs reads at most.
	ScrubRate unit.Size `toml:"scrub_rate"`
}

// DefaultConfig returns the defaults. Opening a sound pack takes milliseconds, or seconds on a
// sleeping disk. A check reads 50 MiB a second on slow disks and cores; the budget is ten times
// that. A scrub leaves most of a disk to requests.
func DefaultConfig() Config {
	return Config{
		StatementTimeout: unit.Duration(2 * time.Second),
		VerifyBase:       unit.Duration(10 * time.Second),
		VerifyRate:       4 << 20,
		ScrubRate:        64 << 20,
	}
}

// Validate joins all faults of c. It names keys below edge.
func (c Config) Validate() error {
	return errors.Join(unit.Between("packs.statement_timeout", c.StatementTimeout, 10*time.Millisecond, time.Minute),
		unit.Between("packs.verify_base", c.VerifyBase, 10*time.Millisecond, time.Hour),
		unit.Within("packs.verify_rate", c.VerifyRate, 64<<10, 10<<30),
		unit.Within("packs.scrub_rate", c.ScrubRate, 64<<10, 10<<30))
}

// budget returns how long the check of a pack of size bytes may take.
func (c Config) budget(size int64) time.Duration {
	return c.VerifyBase.D() + time.Duration(float64(size)/float64(c.VerifyRate)*float64(time.Second))
}
